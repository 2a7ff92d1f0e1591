"""The Node object and the machine behind it."""
