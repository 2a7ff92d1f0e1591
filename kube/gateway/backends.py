"""Backends of routes: references to ports of Services, resolved without following what the route may not refer to."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from kube.gateway import filters
from kube.gateway.model import Backend
from kube.gateway.objects import BackendReference
from kube.gateway.service_ports import ServicePorts
from kube.gateway.verdict import RESOLVED, Verdict, failed
from kube.gateway.view import View

UNSUPPORTED_PROTOCOLS = frozenset({"kubernetes.io/h2c", "kubernetes.io/wss", "https", "grpc", "h2c"})
"""Values of appProtocol: the gateway speaks HTTP/1.1 without TLS to backends."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A backend, and the verdict about its reference. One that cannot be used has its weight and no Service."""

    backend: Backend
    verdict: Verdict


def resolve(reference: BackendReference, namespace: str, view: View) -> Generator[int, None, Resolved]:
    """Resolve a reference of an HTTPRoute in a namespace, the generator's value; raises filters.Unsupported."""
    converted = filters.convert(reference.filters)
    verdict = yield from _check(reference, namespace, view)
    weight = max(reference.weight, 0)
    if not verdict.ok:
        return Resolved(Backend(weight), verdict)
    target = reference.namespace or namespace
    return Resolved(Backend(weight, target, reference.name, reference.port or 0, converted), verdict)


def _check(reference: BackendReference, namespace: str, view: View) -> Generator[int, None, Verdict]:
    kind, target = reference.kind or "Service", reference.namespace or namespace
    if reference.group or kind != "Service":
        named = f"{kind}.{reference.group}" if reference.group else kind
        return failed("InvalidKind", f"A backend is a Service, not a {named}")
    if not view.permitted("HTTPRoute", namespace, "Service", target, reference.name):
        return failed(
            "RefNotPermitted",
            f"No ReferenceGrant permits the reference to Service {reference.name} in namespace {target}",
        )
    ports = yield from view.ports(target, reference.name)
    if ports is None:
        return failed("BackendNotFound", f"There is no Service {target}/{reference.name}")
    return check_port(ports, target, reference.name, reference.port)


def check_port(ports: ServicePorts, namespace: str, name: str, port: int | None) -> Verdict:
    """Return whether a gateway can send requests to a port of a Service."""
    named = f"Service {namespace}/{name}"
    if ports.external:
        return failed("BackendNotFound", f"{named} of type ExternalName cannot be a backend")
    if port is None or port not in ports.protocols:
        return failed("BackendNotFound", f"{named} has no TCP port {port}")
    protocol = ports.protocols[port]
    if protocol in UNSUPPORTED_PROTOCOLS:
        return failed("UnsupportedProtocol", f"Port {port} of {named} has appProtocol {protocol}")
    return RESOLVED
