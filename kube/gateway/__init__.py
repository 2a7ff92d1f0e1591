"""The traffic of a gateway, computed from the objects of the Gateway API and Ingresses."""
