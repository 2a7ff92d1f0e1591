"""What a pod asks for, in the container runtime's words: sandbox, containers, environment, security, names."""
