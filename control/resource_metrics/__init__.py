"""metrics.k8s.io: usage of nodes and pods, read from the agents on demand."""
