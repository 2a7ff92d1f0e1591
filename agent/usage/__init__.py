"""Resource usage on this node: read from the runtime, cgroups and /proc, served as the summary API and as metrics."""
