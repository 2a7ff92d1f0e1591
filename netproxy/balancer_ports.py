"""Ports of load balancers at the node's own addresses, and which of them programs of the node listen on.

Only a port that was looked up and is free is served here: one that nobody has looked up yet may be sshd's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass

from kube.api import core_v1
from kube.ip_addresses import canonical
from netproxy.listeners import Socket


@dataclass(frozen=True, slots=True, order=True)
class PortInUse:
    """A port of a load balancer at the node's own address that a program of the node listens on."""

    key: str
    address: str
    protocol: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port}/{self.protocol} at {self.address} is in use by a program"


class BalancerPorts:
    """The ports by address, protocol and number, with the keys of their Services."""

    def __init__(self) -> None:
        self.own_addresses: frozenset[str] = frozenset()
        self._keys: dict[Socket, tuple[str, ...]] = {}
        self._unknown: set[Socket] = set()
        self._free: set[Socket] = set()
        self._in_use: dict[Socket, set[str]] = {}
        """Ports in use -> the Services that were reported for them."""

    @property
    def sockets(self) -> Collection[Socket]:
        """All ports."""
        return self._keys.keys()

    @property
    def unknown(self) -> Collection[Socket]:
        """Those that `set_in_use` was never called with."""
        return self._unknown

    def not_free(self, service: core_v1.Service) -> frozenset[Socket]:
        """Return the ports of a Service that are not served here."""
        return self._of(service) - self._free

    def replace(self, key: str, before: core_v1.Service | None, after: core_v1.Service | None) -> None:
        """Take the change of a Service; None for one that is not there."""
        self._replace(key, self._of(before), self._of(after))

    def set_own_addresses(self, addresses: frozenset[str], services: Mapping[str, core_v1.Service]) -> None:
        """Store the node's own addresses; `services` are those with a load balancer at one that comes or goes."""
        before = {key: self._of(service) for key, service in services.items()}
        self.own_addresses = addresses
        for key, sockets in before.items():
            self._replace(key, sockets, self._of(services[key]))

    def set_in_use(self, looked_up: Set[Socket], in_use: Set[Socket]) -> tuple[list[PortInUse], Iterable[str]]:
        """Store which of the ports are in use.

        Return those that were not before, and the keys of the Services with ports that are free now, or were.
        """
        known = {socket for socket in looked_up if socket in self._keys}
        taken, free = known & in_use, known - in_use
        changed = (free - self._free) | (taken & self._free)
        self._unknown -= known
        self._free -= taken
        self._free |= free
        found = []
        for socket in taken:
            reported, keys = self._in_use.get(socket, set()), set(self._keys[socket])
            found += [PortInUse(key, *socket) for key in keys - reported]
            self._in_use[socket] = keys
        if self._in_use:
            for socket in free:
                self._in_use.pop(socket, None)
        return sorted(found), {key for socket in changed for key in self._keys[socket]}

    def _of(self, service: core_v1.Service | None) -> frozenset[Socket]:
        if service is None or service.spec.type != "LoadBalancer":
            return frozenset()
        own = balancer_addresses(service) & self.own_addresses
        ports = service.spec.ports if own else ()
        return frozenset(Socket(address, port.protocol or "TCP", port.port) for port in ports for address in own)

    def _replace(self, key: str, before: frozenset[Socket], after: frozenset[Socket]) -> None:
        for socket in before - after:
            left = tuple(each for each in self._keys.pop(socket, ()) if each != key)
            if left:
                self._keys[socket] = left
                self._in_use.get(socket, set()).discard(key)
            else:
                self._in_use.pop(socket, None)
                self._unknown.discard(socket)
                self._free.discard(socket)
        for socket in after - before:
            if socket not in self._keys:
                self._unknown.add(socket)
            self._keys[socket] = (*self._keys.get(socket, ()), key)


def balancer_addresses(service: core_v1.Service | None) -> set[str]:
    """Return the addresses in a Service's status, in their canonical form."""
    status = service.status.load_balancer if service is not None else None
    return {canonical(ingress.ip) for ingress in (status.ingress if status else ()) if ingress.ip}
