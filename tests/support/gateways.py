"""Objects of the Gateway API for tests, and the view of a cluster that has only what a test names."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, TypeVar

from kube.api import core_v1, networking_v1
from kube.gateway.grants import Grants
from kube.gateway.ingress_hosts import Named, Owners, by_age
from kube.gateway.objects import GROUP, Gateway, HTTPRoute, ReferenceGrant
from kube.gateway.service_ports import PortIndexes, ServicePorts
from kube.gateway.view import Certificate
from kube.serialize import convert

T = TypeVar("T")
CREATED = "2026-01-01T00:00:00Z"


def made(kind: type[T], name: str, namespace: str, spec: Mapping[str, Any], **metadata: Any) -> T:
    """Return an object of a kind."""
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "generation": 1,
            "creationTimestamp": CREATED,
            **metadata,
        },
        "spec": spec,
    }
    return convert(body, kind)


def listener(name: str = "http", port: int = 80, protocol: str = "HTTP", **more: Any) -> dict[str, Any]:
    """Return a listener; an HTTPS listener has the certificate `cert` unless another one is given."""
    if protocol == "HTTPS":
        more.setdefault("tls", {"certificateRefs": [{"name": "cert"}]})
    return {"name": name, "port": port, "protocol": protocol, **more}


def from_all(**more: Any) -> dict[str, Any]:
    """Return allowed routes of all namespaces."""
    return {"namespaces": {"from": "All"}, **more}


def gateway(*listeners: dict[str, Any], name: str = "web", namespace: str = "infra", **spec: Any) -> Gateway:
    body = {"gatewayClassName": "wherry", "listeners": list(listeners) or [listener()], **spec}
    return made(Gateway, name, namespace, body)


def backend(name: str = "app", port: int = 8080, **more: Any) -> dict[str, Any]:
    return {"name": name, "port": port, **more}


def rule(*backends: dict[str, Any], path: str = "", **more: Any) -> dict[str, Any]:
    """Return a rule with backends (by default the Service app), for a prefix of paths."""
    found: dict[str, Any] = {"backendRefs": list(backends) or [backend()], **more}
    if path:
        found["matches"] = [{"path": {"type": "PathPrefix", "value": path}}]
    return found


def parent(name: str = "web", **more: Any) -> dict[str, Any]:
    return {"group": GROUP, "kind": "Gateway", "name": name, **more}


def route(
    *rules: dict[str, Any],
    name: str = "route",
    namespace: str = "infra",
    hostnames: Iterable[str] = (),
    parents: Iterable[dict[str, Any]] = (),
    created: str = CREATED,
    **metadata: Any,
) -> HTTPRoute:
    body = {
        "parentRefs": list(parents) or [parent()],
        "hostnames": list(hostnames),
        "rules": list(rules) or [rule()],
    }
    return made(HTTPRoute, name, namespace, body, creationTimestamp=created, **metadata)


def grant(kind: str, source: str, target_kind: str, namespace: str, name: str = "") -> ReferenceGrant:
    """Return a grant in a namespace, to objects of a kind in the namespace `source`."""
    to = {"group": "", "kind": target_kind} | ({"name": name} if name else {})
    spec = {"from": [{"group": GROUP, "kind": kind, "namespace": source}], "to": [to]}
    return made(ReferenceGrant, "grant", namespace, spec)


def service(name: str = "app", namespace: str = "infra", *, port: int = 8080, **spec: Any) -> core_v1.Service:
    ports = [{"name": "http", "port": port, "protocol": "TCP"}]
    return made(core_v1.Service, name, namespace, {"ports": ports, **spec})


def ingress(
    *rules: dict[str, Any], name: str = "web", namespace: str = "infra", created: str = CREATED, **spec: Any
) -> networking_v1.Ingress:
    body = {"ingressClassName": "wherry", "rules": list(rules), **spec}
    return made(networking_v1.Ingress, name, namespace, body, creationTimestamp=created)


def ingress_rule(host: str = "", *paths: str, service: str = "app", kind: str = "Prefix") -> dict[str, Any]:
    target = {"service": {"name": service, "port": {"number": 8080}}}
    found = [{"path": each, "pathType": kind, "backend": target} for each in paths or ("/",)]
    return {"http": {"paths": found}} | ({"host": host} if host else {})


class ByAge:
    """Owners of hosts where there are no records."""

    def owners(self, named: Named) -> Generator[int, None, Owners]:
        return by_age(named, {})


class FakeView:
    """A cluster with namespaces, Services, grants and certificates (with their states)."""

    def __init__(
        self,
        *objects: core_v1.Service | ReferenceGrant,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        certificates: Mapping[str, Certificate] | None = None,
    ) -> None:
        self.namespaces = {"infra": {}, "apps": {"team": "apps"}, **(namespaces or {})}
        self.services = {
            f"{each.metadata.namespace}/{each.metadata.name}": each
            for each in (service(), *objects)
            if isinstance(each, core_v1.Service)
        }
        grants = [each for each in objects if isinstance(each, ReferenceGrant)]
        self.permitted = Grants(
            lambda namespace: [each for each in grants if each.metadata.namespace == namespace]
        ).permitted
        self.certificates = {"infra/cert": "", **(certificates or {})}
        self._indexes = PortIndexes()

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        return self.namespaces.get(namespace)

    def ports(self, namespace: str, name: str) -> Generator[int, None, ServicePorts | None]:
        found = self.services.get(f"{namespace}/{name}")
        return None if found is None else (yield from self._indexes.of(namespace, name, found))

    def certificate(self, namespace: str, name: str) -> Certificate:
        return self.certificates.get(f"{namespace}/{name}", "missing")


class Counting(FakeView):
    """A cluster without certificates that counts how often it is asked for one."""

    checked = 0

    def certificate(self, namespace: str, name: str) -> Certificate:
        self.checked += 1
        return "missing"
