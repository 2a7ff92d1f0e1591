"""Dynamic resource allocation on the node: claims made ready before a pod starts, and put back after it."""
