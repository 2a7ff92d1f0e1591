"""The Gateway API and Ingress: the configuration of gateways, computed from their objects."""
