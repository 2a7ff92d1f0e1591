"""Dynamic resource allocation on the node: prepares claims before a pod starts, and unprepares them after it."""
