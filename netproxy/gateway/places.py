"""Places of requests at backends: limits in all, for each namespace of backends, and for each client there.

Slow clients can hold places for as long as they like. Where none is left, the oldest request of the client that has most ends,
for a client that has less than half of its number; likewise among namespaces. So nobody is refused because others, however
few or many, hold all places.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from netproxy.gateway.errors import Refused
from netproxy.gateway.limits import BackendLimits


class _Request:
    """A request under way; `end` closes the client's connection."""

    __slots__ = ("client", "end", "namespace")

    def __init__(self, namespace: str, client: str, end: Callable[[], None]) -> None:
        self.namespace, self.client, self.end = namespace, client, end


class _Namespace:
    """Requests at the backends of a namespace by client, the oldest first."""

    __slots__ = ("clients", "count")

    def __init__(self) -> None:
        self.clients: dict[str, dict[_Request, None]] = {}
        self.count = 0

    def of(self, client: str) -> int:
        return len(self.clients.get(client, ()))

    def weakest(self) -> _Request:
        """Return the oldest request of the client that has most."""
        largest = max(self.clients.values(), key=lambda each: len(each))
        return next(iter(largest))


class Places:
    """All requests under way at backends."""

    def __init__(self, limits: BackendLimits) -> None:
        self._limits = limits
        self._namespaces: dict[str, _Namespace] = {}
        self._total = 0

    @contextlib.contextmanager
    def hold(self, namespace: str, client: str, end: Callable[[], None]) -> Iterator[None]:
        """Hold a place at the backends of a namespace, until `end` is called for others; Refused if there is none."""
        self._make_room(namespace, client)
        request = _Request(namespace, client, end)
        group = self._namespaces.setdefault(namespace, _Namespace())
        group.clients.setdefault(client, {})[request] = None
        group.count += 1
        self._total += 1
        try:
            yield
        finally:
            self._remove(request)

    def _make_room(self, namespace: str, client: str) -> None:
        limits, group = self._limits, self._namespaces.get(namespace) or _Namespace()
        own = group.of(client)
        if own >= limits.client:
            raise Refused(503, "too many requests of this client")
        if group.count >= limits.each:
            if not _is_few(own, map(len, group.clients.values())):
                raise Refused(503, "too many requests to backends of this namespace")
            self._end(group.weakest())
        elif self._total >= limits.connections:
            if not _is_few(group.count, (each.count for each in self._namespaces.values())):
                raise Refused(503, "too many requests")
            self._end(max(self._namespaces.values(), key=lambda each: each.count).weakest())

    def _end(self, request: _Request) -> None:
        self._remove(request)
        request.end()

    def _remove(self, request: _Request) -> None:
        """Free a place; again is no error."""
        group = self._namespaces.get(request.namespace)
        requests = group.clients.get(request.client) if group is not None else None
        if group is None or requests is None or request not in requests:
            return
        del requests[request]
        group.count -= 1
        self._total -= 1
        if not requests:
            del group.clients[request.client]
            if not group.clients:
                del self._namespaces[request.namespace]


def _is_few(own: int, counts: Iterable[int]) -> bool:
    return 2 * own < max(counts) - 1
