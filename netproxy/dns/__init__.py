"""Cluster DNS on the node: answers names of Services, endpoints and pods from informers, forwards all others."""
