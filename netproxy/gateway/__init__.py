"""A node's gateway: HTTP and HTTPS for Gateways and Ingresses, in a process of its own."""
