"""Informers of everything that gateways are computed from, with the indexes by which objects are found that others refer to."""

from __future__ import annotations

from dataclasses import dataclass

from kube.api import core_v1, networking_v1
from kube.gateway import indexes
from kube.gateway.objects import Gateway, GatewayClass, HTTPRoute, ReferenceGrant
from kube.indexer import by_namespace
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class Informers:
    """Informers of everything that a gateway is computed from, but for certificates."""

    classes: Informer[GatewayClass]
    gateways: Informer[Gateway]
    routes: Informer[HTTPRoute]
    grants: Informer[ReferenceGrant]
    namespaces: Informer[core_v1.Namespace]
    services: Informer[core_v1.Service]
    ingress_classes: Informer[networking_v1.IngressClass]
    ingresses: Informer[networking_v1.Ingress]

    def add_indexes(self) -> None:
        """Add the indexes of kube/gateway/indexes.py."""
        self.routes.add_index(indexes.PARENT, indexes.parents)
        self.routes.add_index(indexes.BACKEND, indexes.backends)
        self.routes.add_index(indexes.BACKEND_NAMESPACE, indexes.backend_namespaces)
        self.routes.add_index(indexes.NAMESPACE, by_namespace)
        self.gateways.add_index(indexes.CLASS, indexes.class_of)
        self.gateways.add_index(indexes.CERTIFICATE, indexes.certificates)
        self.gateways.add_index(indexes.CERTIFICATE_NAMESPACE, indexes.certificate_namespaces)
        self.ingresses.add_index(indexes.BACKEND, indexes.ingress_backends)
        self.ingresses.add_index(indexes.CERTIFICATE, indexes.ingress_certificates)
        self.grants.add_index(indexes.NAMESPACE, by_namespace)
