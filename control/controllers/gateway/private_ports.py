"""Ports of the nodes on which their gateways listen, one for each port of each Gateway.

They are above the range of outgoing connections, and recorded in the EndpointSlices: a restart keeps them. A port that
becomes free is given again as late as possible, since a node may still serve it for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

FIRST, LAST = 61000, 62023


class NoPort(Exception):
    """All ports are given."""


class PrivatePorts:
    """Ports by Gateways' UIDs and their own ports."""

    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        self._first, self._count = first, last - first + 1
        self._next = first
        self._given: dict[str, dict[int, int]] = {}
        self._used: set[int] = set()

    def restore(self, uid: str, ports: Iterable[tuple[int, int]]) -> None:
        """Record ports that a Gateway has; those that another one has, or out of the range, are not kept."""
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

    def assign(self, uid: str, ports: Iterable[int]) -> Mapping[int, int]:
        """Give a Gateway ports in addition to those that it has; raises NoPort, with none given, if too few are free."""
        known = self._given.get(uid, {})
        new = [port for port in dict.fromkeys(ports) if port not in known]
        if len(self._used) + len(new) > self._count:
            raise NoPort(f"all {self._count} ports of gateways on the nodes are in use")
        for port in new:
            self._given.setdefault(uid, {})[port] = self._take()
        return self.of(uid)

    def release(self, uid: str, keep: Iterable[int] = ()) -> None:
        """Take from a Gateway all ports but some."""
        kept = set(keep)
        known = self._given.get(uid, {})
        for port in known.keys() - kept:
            self._used.discard(known.pop(port))
        if not known:
            self._given.pop(uid, None)

    def _take(self) -> int:
        while True:
            number = self._first + (self._next - self._first) % self._count
            self._next = number + 1
            if number not in self._used:
                self._used.add(number)
                return number
