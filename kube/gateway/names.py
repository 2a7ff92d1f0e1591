"""Names that the controller and the nodes' gateways share: classes, the namespace of generated objects, labels."""

from __future__ import annotations

import hashlib

CONTROLLER = "gateway.wherry.dev/controller"
"""Controller of GatewayClasses and IngressClasses that this gateway serves."""
CLASS = "wherry"
"""Name of the GatewayClass and the IngressClass that Wherry creates."""
NAMESPACE = "wherry-gateway"
"""Namespace of generated Services, EndpointSlices and copies of certificates. Owners of Gateways have no access to it."""
UID = "gateway.wherry.dev/gateway-uid"
"""Label of a generated object: the UID of its Gateway, INGRESS for the one that serves Ingresses."""
OWNER = "gateway.wherry.dev/gateway"
"""Annotation of a generated object: its Gateway as namespace/name."""
MANAGED_BY = "gateway.wherry.dev"
"""Manager of generated EndpointSlices (label endpointslice.kubernetes.io/managed-by)."""
CERTIFICATE = "gateway.wherry.dev/certificate"
"""Label of copies of certificates; the annotation of the same name is the original as namespace/name."""
INGRESS = "ingress"
"""Name and UID of the built-in gateway for Ingresses, which has no Gateway object."""
HTTP, HTTPS = 80, 443
"""Ports of the gateway for Ingresses."""
HOSTS = "ingress-hosts"
"""ConfigMap in NAMESPACE that exists once hosts are recorded; with a hyphen and a namespace, that namespace's record."""


def copy_of(namespace: str, name: str) -> str:
    """Return the name of the copy of a certificate's Secret in NAMESPACE."""
    return f"tls-{hashlib.sha256(f'{namespace}/{name}'.encode()).hexdigest()[:40]}"


def generated(uid: str) -> str:
    """Return the name of the Service of a Gateway, which its EndpointSlices' names begin with."""
    return INGRESS if uid == INGRESS else f"gateway-{uid}"


def port_name(port: int) -> str:
    """Return the name of a listener's port in the Service and the EndpointSlices."""
    return f"port-{port}"
