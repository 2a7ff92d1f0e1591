"""The kubelet's API of simulated nodes: logs, exec, attach and port-forward, answered by scripts and handlers."""
