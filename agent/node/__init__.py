"""The node's own object, and the machine behind it."""
