"""Structural schemas: what a definition says of its objects, compiled, checked and applied."""
