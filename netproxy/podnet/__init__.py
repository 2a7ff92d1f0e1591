"""The pod network of a node: the CNI configuration, and the routes that keep cluster addresses inside the cluster."""
