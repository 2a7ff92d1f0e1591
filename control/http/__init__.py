"""Requests and responses: their types, reading, writing and proxying."""
