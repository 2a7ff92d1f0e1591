"""Structural schemas of custom resource definitions: compiled, checked and applied."""
