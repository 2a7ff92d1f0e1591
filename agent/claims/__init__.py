"""Dynamic resource allocation on the node: claims made ready by their drivers before a pod starts, and put back after it."""
