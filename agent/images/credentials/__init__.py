"""Image pull credentials: the pod's secrets, the node's own docker configuration, and exec plugins (KEP-2133)."""
