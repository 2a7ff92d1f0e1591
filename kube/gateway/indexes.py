"""Indexes of Gateways, routes and Ingresses by the objects that they refer to; those of Gateways and routes by their own
namespaces too, since each namespace's are gone through apart (kube/gateway/references.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import networking_v1
from kube.gateway.attachment import parent_of
from kube.gateway.objects import Gateway, HTTPRoute, Reference
from kube.object_names import namespace_of

PARENT, BACKEND, BACKEND_NAMESPACE, NAMESPACE = "parent", "backend", "backend-namespace", "namespace"
CLASS, CERTIFICATE, CERTIFICATE_NAMESPACE = "class", "certificate", "certificate-namespace"


def referring(namespace: str, target: str) -> str:
    """Return the value in an index of what refers to a target, of the objects in a namespace."""
    return f"{namespace} {target}"


def parents(route: HTTPRoute) -> set[str]:
    """Return the keys of the Gateways that a route refers to."""
    return {key for each in route.spec.parent_refs if (key := parent_of(each, route)) is not None}


def backends(route: HTTPRoute) -> set[str]:
    """Return the values of a route by the Services that it refers to."""
    own = namespace_of(route)
    return {
        referring(own, f"{each.namespace or own}/{each.name}")
        for rule in route.spec.rules
        for each in rule.backend_refs
    }


def backend_namespaces(route: HTTPRoute) -> set[str]:
    """Return the values of a route by the other namespaces that it refers to."""
    own = namespace_of(route)
    found = {each.namespace for rule in route.spec.rules for each in rule.backend_refs if each.namespace}
    return {referring(own, each) for each in found - {own}}


def certificates(gateway: Gateway) -> set[str]:
    """Return the values of a Gateway by the Secrets that it refers to."""
    own = namespace_of(gateway)
    return {referring(own, f"{each.namespace or own}/{each.name}") for each in _certificate_references(gateway)}


def certificate_namespaces(gateway: Gateway) -> set[str]:
    """Return the values of a Gateway by the other namespaces that it refers to."""
    own = namespace_of(gateway)
    found = {each.namespace for each in _certificate_references(gateway) if each.namespace}
    return {referring(own, each) for each in found - {own}}


def _certificate_references(gateway: Gateway) -> Iterable[Reference]:
    found = (each.tls for each in gateway.spec.listeners)
    return (each for tls in found if tls is not None for each in tls.certificate_refs)


def class_of(gateway: Gateway) -> tuple[str, ...]:
    return (gateway.spec.gateway_class_name,)


def ingress_backends(ingress: networking_v1.Ingress) -> set[str]:
    """Return the keys of the Services that an Ingress refers to."""
    paths = [path.backend for rule in ingress.spec.rules if rule.http is not None for path in rule.http.paths]
    named = (each.service.name for each in (ingress.spec.default_backend, *paths) if each is not None and each.service)
    return {f"{namespace_of(ingress)}/{name}" for name in named}


def ingress_certificates(ingress: networking_v1.Ingress) -> set[str]:
    """Return the keys of the Secrets that an Ingress refers to."""
    return {f"{namespace_of(ingress)}/{each.secret_name}" for each in ingress.spec.tls if each.secret_name}
