"""Time of a cluster: real, or virtual with a clock that moves when the event loop is idle."""
