"""metrics.k8s.io: what nodes and pods use now, asked of the agents when a client asks."""
