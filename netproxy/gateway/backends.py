"""Endpoints of the Services that routes name, from Services and EndpointSlices.

They are selected as the Service proxy does (netproxy/endpoints.py): ready ones, else those that are serving and terminating;
no loopback and no link-local addresses. Addresses of this node are no endpoints either: whoever may write EndpointSlices
could otherwise reach, from the node itself, what its own programs serve. Pods in the node's network are reached on other nodes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from kube.api import core_v1, discovery_v1
from netproxy import endpoints
from netproxy.gateway.errors import Refused

MOST = 4096
"""Ports of Services whose endpoints are cached."""


class Directory(Protocol):
    """Looks up Services and their slices."""

    def service(self, namespace: str, name: str) -> core_v1.Service | None:
        """Return a Service."""

    def endpoint_slices(self, namespace: str, name: str) -> Iterable[discovery_v1.EndpointSlice]:
        """Return the slices of a Service."""


class PortEndpoints:
    """Endpoints of a port of a Service, round robin."""

    def __init__(self, found: list[tuple[str, int]]) -> None:
        self._found = found
        self._next = random.randrange(len(found)) if found else 0
        self._avoided: dict[tuple[str, int], float] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def pick(self, tried: set[tuple[str, int]]) -> tuple[str, int] | None:
        """Return an endpoint that was not tried yet, one that accepts connections if there is one; None if all were."""
        now = time.monotonic() if self._avoided else 0.0
        avoided = None
        for _ in range(len(self._found)):
            endpoint = self._found[self._next % len(self._found)]
            self._next += 1
            if endpoint in tried:
                continue
            if self._avoided and self._avoided.get(endpoint, 0.0) > now:
                avoided = avoided or endpoint
                continue
            return endpoint
        return avoided

    def avoid(self, endpoint: tuple[str, int], seconds: float) -> None:
        """Try an endpoint after all others for a while."""
        self._avoided[endpoint] = time.monotonic() + seconds


class Backends:
    """Cache of endpoints, by namespace, Service and port."""

    def __init__(
        self, directory: Directory, own_addresses: Callable[[], frozenset[str]], node: endpoints.NodeView
    ) -> None:
        self._directory, self._own_addresses, self._node = directory, own_addresses, node
        self._cache: dict[tuple[str, str, int], PortEndpoints] = {}

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is cached of a Service that has changed."""
        for key in [key for key in self._cache if key[0] == namespace and key[1] == name]:
            del self._cache[key]

    def forget_all(self) -> None:
        """Drop everything, if the node's addresses have changed."""
        self._cache.clear()

    def find(self, namespace: str, name: str, port: int) -> PortEndpoints:
        """Return the endpoints of a Service's port; Refused if there is no such port, or no endpoint."""
        key = (namespace, name, port)
        found = self._cache.get(key)
        if found is None:
            found = PortEndpoints(self._endpoints(namespace, name, port))
            if len(self._cache) >= MOST:
                self._cache.clear()
            self._cache[key] = found
        if not found:
            raise Refused(503, "no endpoint of the backend is ready")
        return found

    def _endpoints(self, namespace: str, name: str, number: int) -> list[tuple[str, int]]:
        service = self._directory.service(namespace, name)
        spec = None if service is None else service.spec
        if spec is None or spec.type == "ExternalName":
            raise Refused(500, "the backend does not exist")
        port = next((each for each in spec.ports if each.port == number and (each.protocol or "TCP") == "TCP"), None)
        if port is None:
            raise Refused(500, "the backend has no such port")
        by_port = endpoints.by_port(self._directory.endpoint_slices(namespace, name))
        own = self._own_addresses()
        found: list[tuple[str, int]] = []
        for family in (4, 6):
            collected = endpoints.collect(by_port, family, port.name or "", "TCP", self._node)
            usable = endpoints.cluster_endpoints([each for each in collected if each.ip not in own], self._node)
            found += [(each.ip, each.port) for each in usable if (each.ip, each.port) not in found]
            if found:
                break  # dual-stack pods have an endpoint in each family
        return found
