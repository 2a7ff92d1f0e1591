"""The pod resources interface: what the agent gave to which container, told on a unix socket (podresources/v1)."""
