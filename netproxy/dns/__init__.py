"""Cluster DNS on the node: names of Services, endpoints and pods from the proxy's own watch, the rest forwarded."""
