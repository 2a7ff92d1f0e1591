"""Subresources, and kinds that are only created: a module each, and `table.py` that names their handlers."""
