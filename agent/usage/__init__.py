"""Use of resources on this node: read from the runtime and /proc, shown as the summary API and as metrics."""
