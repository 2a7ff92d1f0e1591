"""The pods of this node: their sources, admission, and a worker for each that syncs it."""
