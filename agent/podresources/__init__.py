"""The pod resources API: reports the resources assigned to each container, on a unix socket (podresources/v1)."""
