"""Endpoints of the Services that routes name, from Services and EndpointSlices.

They are selected as the Service proxy does (netproxy/endpoints.py): ready ones, else those that are serving and terminating;
no loopback and no link-local addresses. Addresses of this node are no endpoints either: whoever may write EndpointSlices
could otherwise reach, from the node itself, what its own programs serve. Pods in the node's network are reached on other nodes.

The ports of a Service and of its slices, of which there may be many thousands, are indexed once for all, in steps that its
namespace is charged with.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from kube.api import core_v1, discovery_v1
from kube.gateway import service_ports
from kube.gateway.steps import SHARES, completed
from kube.ip_addresses import canonical
from kube.step_limit import Limit, StepTooLong, limited
from netproxy import endpoints
from netproxy.gateway.errors import Refused

MOST_PORTS = 1 << 16
"""Ports of Services and slices of one namespace that are indexed; one more drops what was not used for longest."""
PER_STEP = 512
"""Ports of slices that are indexed in a step."""
LARGE, LONGEST = 1024, 5.0
"""Ports from which an index waits until its namespace may compute something, and the seconds that it waits at most."""


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


class _Service:
    """The index of a Service and its slices, and the endpoints of those of its ports that were requested."""

    __slots__ = ("external", "found", "index", "lock", "names", "size")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.size = 0
        """Ports that are indexed; 0 until they are."""
        self.external = False
        self.names: dict[int, str] | None = None
        """Names of the TCP ports by number; None if there is no Service."""
        self.index: endpoints.SlicePorts = {}
        self.found: dict[int, PortEndpoints] = {}

    def build(
        self, service: core_v1.Service | None, slices: Iterable[discovery_v1.EndpointSlice]
    ) -> Generator[int, None, None]:
        """Index the ports in steps."""
        size, self.index = 1, {}
        if service is not None:
            ports = yield from service_ports.index(service)
            self.external, self.names = ports.external, ports.names
            size += len(service.spec.ports)
            for each in slices:
                for _ in endpoints.add_ports(self.index, each, PER_STEP):
                    yield PER_STEP // 8
                size += len(each.ports)
        self.size = size


class Backends:
    """Cache of endpoints, by namespace and Service."""

    def __init__(
        self, directory: Directory, own_addresses: Callable[[], frozenset[str]], node: endpoints.NodeView
    ) -> None:
        self._directory, self._own_addresses, self._node = directory, own_addresses, node
        self._namespaces: dict[str, OrderedDict[str, _Service]] = {}

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is cached of a Service that has changed."""
        if (known := self._namespaces.get(namespace)) is not None and known.pop(name, None) is not None and not known:
            del self._namespaces[namespace]

    def forget_all(self) -> None:
        """Drop everything, if the node's addresses have changed."""
        self._namespaces.clear()

    async def find(self, namespace: str, name: str, port: int) -> PortEndpoints:
        """Return the endpoints of a Service's port; Refused if there is no such port, or no endpoint."""
        known = self._namespaces.get(namespace)
        service = known.get(name) if known is not None else None
        if service is None or not service.size:
            service = await self._indexed(namespace, name)
        elif known is not None:
            known.move_to_end(name)
        found = service.found.get(port)
        if found is None:
            found = service.found[port] = PortEndpoints(self._endpoints(service, port))
        if not found:
            raise Refused(503, "no endpoint of the backend is ready")
        return found

    async def _indexed(self, namespace: str, name: str) -> _Service:
        """Return the index of a Service, which is built for the first of several requests."""
        known = self._namespaces.setdefault(namespace, OrderedDict())
        service = known.setdefault(name, _Service())
        async with service.lock:
            if not service.size:
                await self._build(namespace, name, service)
                self._drop_oldest(namespace)
        return service

    async def _build(self, namespace: str, name: str, service: _Service) -> None:
        found, slices = self._directory.service(namespace, name), list(self._directory.endpoint_slices(namespace, name))
        if sum(len(each.ports) for each in slices) + (0 if found is None else len(found.spec.ports)) > LARGE:
            await asyncio.sleep(min(SHARES.delay(namespace), LONGEST))
        try:
            await limited(completed(service.build(found, slices)), Limit(SHARES, namespace))
        except StepTooLong:
            raise Refused(503, "the ports of the backend take too long to index") from None

    def _drop_oldest(self, namespace: str) -> None:
        known = self._namespaces.get(namespace, OrderedDict())
        total = sum(each.size for each in known.values())
        while total > MOST_PORTS and len(known) > 1:
            total -= known.popitem(last=False)[1].size

    def _endpoints(self, service: _Service, number: int) -> list[tuple[str, int]]:
        if service.names is None or service.external:
            raise Refused(500, "the backend does not exist")
        if number not in service.names:
            raise Refused(500, "the backend has no such port")
        own = self._own_addresses()
        found: list[tuple[str, int]] = []
        for family in (4, 6):
            collected = endpoints.collect(service.index, family, service.names[number], "TCP", self._node)
            others = [each for each in collected if canonical(each.ip) not in own]
            usable = endpoints.cluster_endpoints(others, self._node)
            found += [(each.ip, each.port) for each in usable if (each.ip, each.port) not in found]
            if found:
                break  # dual-stack pods have an endpoint in each family
        return found
