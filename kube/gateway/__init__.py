"""The Gateway API and Ingress: what a gateway serves, computed from their objects."""
