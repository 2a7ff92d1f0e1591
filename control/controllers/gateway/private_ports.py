"""Ports of the nodes on which their gateways listen, one for each port of each Gateway.

They are above the range of outgoing connections, and recorded in the EndpointSlices: a restart keeps them. A port that
becomes free is given again as late as possible, since a node may still serve it for a moment.

The fewer ports are left, the fewer a namespace may have: some namespaces with many Gateways do not use up the ports of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube.gateway.names import INGRESS

FIRST, LAST = 61000, 62023
FOR_INGRESSES = 2
"""Ports that only the gateway of all Ingresses gets."""
LEAST, SHARE = 4, 4
"""Half of the ports are for namespaces with at most LEAST. More may have one part in SHARE of what is left of the others."""


class NoPort(Exception):
    """Too few ports are left."""


class PrivatePorts:
    """Ports by Gateways' UIDs and their own ports."""

    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        self._first, self._count = first, last - first + 1
        self._next = first
        self._given: dict[str, dict[int, int]] = {}
        self._namespaces: dict[str, str] = {}
        self._used: set[int] = set()

    def restore(self, uid: str, ports: Iterable[tuple[int, int]], namespace: str) -> None:
        """Record ports that a Gateway has; those that another one has, or out of the range, are not kept."""
        self._namespaces[uid] = namespace
        for port, number in ports:
            known = self._given.setdefault(uid, {})
            if port in known or number in self._used or not self._first <= number < self._first + self._count:
                continue
            known[port] = number
            self._used.add(number)
            self._next = max(self._next, number + 1)

    def of(self, uid: str) -> Mapping[int, int]:
        """Return the ports of a Gateway, by its own."""
        return self._given.get(uid, {})

    def assign(self, uid: str, ports: Iterable[int], namespace: str) -> Mapping[int, int]:
        """Give a Gateway ports in addition to those that it has; raises NoPort, with none given, if too few are left."""
        known = self._given.get(uid, {})
        new = [port for port in dict.fromkeys(ports) if port not in known]
        if new:
            self._check(uid, namespace, len(new))
            self._namespaces[uid] = namespace
        for port in new:
            self._given.setdefault(uid, {})[port] = self._take()
        return self.of(uid)

    def _check(self, uid: str, namespace: str, new: int) -> None:
        """Raise NoPort if a Gateway cannot have a number of new ports."""
        reserved = 0 if uid == INGRESS else max(0, FOR_INGRESSES - len(self.of(INGRESS)))
        left = self._count - len(self._used) - reserved - new
        if left < 0:
            raise NoPort(f"all {self._count} ports of gateways on the nodes are in use")
        total = new + sum(len(self.of(each)) for each, where in self._namespaces.items() if where == namespace)
        if uid != INGRESS and total > (most := max(LEAST, (left - self._count // 2) // SHARE)):
            raise NoPort(
                f"few ports of gateways on the nodes are free: a namespace may have {most}, this one needs {total}"
            )

    def release(self, uid: str, keep: Iterable[int] = ()) -> None:
        """Take from a Gateway all ports but some."""
        kept = set(keep)
        known = self._given.get(uid, {})
        for port in known.keys() - kept:
            self._used.discard(known.pop(port))
        if not known:
            self._given.pop(uid, None)
            self._namespaces.pop(uid, None)

    def _take(self) -> int:
        while True:
            number = self._first + (self._next - self._first) % self._count
            self._next = number + 1
            if number not in self._used:
                self._used.add(number)
                return number
