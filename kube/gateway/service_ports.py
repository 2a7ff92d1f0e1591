"""Indexes of the ports of Services, built once for each: an Ingress and its Service may each have thousands of lines."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from kube.api import core_v1

MOST_PORTS = 1 << 16
"""Ports in the indexes of the Services of one namespace; one more forgets those that were not used for longest."""
PER_STEP = 512
"""Ports that are indexed in a step, each in about half a microsecond."""


@dataclass(slots=True)
class ServicePorts:
    """TCP ports of a Service by number, with their names and application protocols; numbers of all ports by name."""

    external: bool
    """True if the Service is of type ExternalName."""
    protocols: dict[int, str | None] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


def index(service: core_v1.Service) -> Generator[int, None, ServicePorts]:
    """Index a Service, the generator's value; of several ports with one number or name the first counts."""
    found = ServicePorts(service.spec.type == "ExternalName")
    ports = service.spec.ports
    for start in range(0, len(ports), PER_STEP):
        for each in ports[start : start + PER_STEP]:
            if (each.protocol or "TCP") == "TCP" and each.port not in found.names:
                found.names[each.port], found.protocols[each.port] = each.name or "", each.app_protocol
            if each.name:
                found.numbers.setdefault(each.name, each.port)
        yield PER_STEP // 8
    return found


class PortIndexes:
    """Indexes of Services, each used while its Service is the same object."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, tuple[core_v1.Service, ServicePorts]]] = {}
        """By namespace and name, the one that was used last behind the others."""
        self._counts: dict[str, int] = {}

    def of(self, namespace: str, name: str, service: core_v1.Service) -> Generator[int, None, ServicePorts]:
        """Return the index of a Service, the generator's value; a missing one is built in steps."""
        known = self._namespaces.get(namespace)
        entry = known.get(name) if known is not None else None
        if entry is not None and entry[0] is service:
            if known is not None and next(reversed(known)) != name:
                known[name] = known.pop(name)
            return entry[1]
        found = yield from index(service)
        self._store(namespace, name, service, found)
        return found

    def forget(self, namespace: str, name: str) -> None:
        """Drop the index of a Service that has changed."""
        known = self._namespaces.get(namespace, {})
        if (entry := known.pop(name, None)) is not None:
            self._counts[namespace] -= _size(entry[0])
            if not known:
                del self._namespaces[namespace], self._counts[namespace]

    def _store(self, namespace: str, name: str, service: core_v1.Service, found: ServicePorts) -> None:
        self.forget(namespace, name)
        known = self._namespaces.setdefault(namespace, {})
        count = self._counts.get(namespace, 0)
        while known and count + _size(service) > MOST_PORTS:
            count -= _size(known.pop(next(iter(known)))[0])
        known[name] = service, found
        self._counts[namespace] = count + _size(service)


def _size(service: core_v1.Service) -> int:
    return 1 + len(service.spec.ports)
