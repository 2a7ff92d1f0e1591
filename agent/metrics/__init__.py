"""Metrics that the parts of the agent count, and their text format."""
