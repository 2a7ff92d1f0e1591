"""Indexes of Gateways, routes and Ingresses by the objects that they refer to."""

from __future__ import annotations

from kube.api import networking_v1
from kube.gateway.attachment import parent_of
from kube.gateway.objects import Gateway, HTTPRoute
from kube.object_names import namespace_of

PARENT, BACKEND, BACKEND_NAMESPACE, NAMESPACE = "parent", "backend", "backend-namespace", "namespace"
CLASS, CERTIFICATE, CERTIFICATE_NAMESPACE = "class", "certificate", "certificate-namespace"


def parents(route: HTTPRoute) -> set[str]:
    """Return the keys of the Gateways that a route refers to."""
    return {key for each in route.spec.parent_refs if (key := parent_of(each, route)) is not None}


def backends(route: HTTPRoute) -> set[str]:
    """Return the keys of the Services that a route refers to."""
    own = namespace_of(route)
    return {f"{each.namespace or own}/{each.name}" for rule in route.spec.rules for each in rule.backend_refs}


def backend_namespaces(route: HTTPRoute) -> set[str]:
    """Return the other namespaces that a route refers to."""
    return {key.partition("/")[0] for key in backends(route)} - {namespace_of(route)}


def certificates(gateway: Gateway) -> set[str]:
    """Return the keys of the Secrets that a Gateway refers to."""
    own = namespace_of(gateway)
    return {
        f"{each.namespace or own}/{each.name}"
        for listener in gateway.spec.listeners
        if listener.tls is not None
        for each in listener.tls.certificate_refs
    }


def certificate_namespaces(gateway: Gateway) -> set[str]:
    """Return the other namespaces that a Gateway refers to."""
    return {key.partition("/")[0] for key in certificates(gateway)} - {namespace_of(gateway)}


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
