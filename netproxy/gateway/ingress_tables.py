"""Routes of Ingresses, compiled for each namespace by itself and kept while they are the same.

All Ingresses share one gateway, so what one namespace has compiled must not delay the others. It is compiled in steps under
the limit of its namespace. A namespace that has used up its time, or of which a step was stopped, is served as before until it
may continue; the others are served as they are now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from operator import is_

from kube.gateway.hostnames import parent
from kube.gateway.model import HostOwners, Route
from kube.gateway.steps import SHARES, completed
from kube.step_limit import Limit, StepTooLong, limited
from netproxy.gateway.listener_table import ListenerTable
from netproxy.gateway.path_table import Condition, Found, conditions
from netproxy.gateway.request import RoutedRequest

log = logging.getLogger(__name__)
Compiled = tuple[Route, Sequence[Condition]]


class IngressTable:
    """The routes of all Ingresses: of each namespace for the hosts that it owns, and those for hosts without an owner."""

    __slots__ = ("_namespaces", "_owners", "_unowned")

    def __init__(self, owners: HostOwners, namespaces: dict[str, ListenerTable], unowned: ListenerTable) -> None:
        self._owners, self._namespaces, self._unowned = owners.namespaces, namespaces, unowned

    def find(self, request: RoutedRequest, namespace: str) -> Found | None:
        """Return the rule for a request, only of a namespace if there is one; Refused if that takes too many comparisons."""
        owner = self.owner(request.target.host, namespace)
        if owner and namespace not in ("", owner):
            return None
        table = self._namespaces.get(owner) if owner else self._unowned
        return None if table is None else table.find(request)

    def owner(self, host: str, namespace: str) -> str:
        """Return the namespace that a host belongs to; that of the certificate, if it has one, for hosts without an owner."""
        return self._owners.get(host) or self._owners.get(parent(host)) or namespace


class IngressListener:
    """A listener for Ingresses: of a namespace with TLS, of all without."""

    __slots__ = ("_namespace", "_table")

    def __init__(self, table: IngressTable, namespace: str) -> None:
        self._table, self._namespace = table, namespace

    def find(self, request: RoutedRequest) -> Found | None:
        """Return the rule for a request; Refused if that takes too many comparisons."""
        return self._table.find(request, self._namespace)

    def owner(self, host: str) -> str:
        """Return the namespace of a host's routes, "" if they are of several."""
        return self._table.owner(host, self._namespace)


class _Namespace:
    """The compiled routes of a namespace."""

    __slots__ = ("compiled", "routes", "table", "unowned")

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self.compiled: dict[int, Compiled] = {}
        """By the identity of routes: they are the same objects until their Ingress is converted again."""
        self.table = ListenerTable()
        self.unowned: list[Compiled] = []
        """Routes without a hostname, which also serve hosts without an owner."""

    def compile(self, routes: list[Route]) -> Generator[int, None, _Namespace]:
        """Return the namespace with these routes, the generator's value; yield numbers of conditions."""
        found = _Namespace()
        for route in routes:
            known = self.compiled.get(id(route)) or (route, (yield from conditions(route)))
            found.compiled[id(route)] = known
            yield from found.table.add(*known)
            if not route.hostnames:
                found.unowned.append(known)
            yield 1
        found.routes = routes
        return found


class IngressTables:
    """Compiles the routes of Ingresses; `again` is called when a namespace that had to wait may continue."""

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again
        self._namespaces: dict[str, _Namespace] = {}
        self._waiting: set[str] = set()
        self._waited: set[str] = set()
        """Namespaces that have waited: they are compiled once whatever else of theirs has taken time meanwhile."""
        self._unowned: tuple[list[Compiled], ListenerTable] = [], ListenerTable()

    async def compile(self, owners: HostOwners, routes: Sequence[Route]) -> IngressTable:
        """Return the table of all routes; of a namespace that has to wait the routes that it had."""
        wanted = await completed(_by_namespace(routes))
        for namespace, mine in wanted.items():
            before = self._namespaces.get(namespace)
            if before is None or not _same(before.routes, mine):
                await self._compile(namespace, before or _Namespace(), mine)
        for namespace in self._namespaces.keys() - wanted.keys():
            del self._namespaces[namespace]
        self._waited &= wanted.keys()
        tables = {namespace: found.table for namespace, found in self._namespaces.items()}
        return IngressTable(owners, tables, await completed(self._for_unowned()))

    async def _compile(self, namespace: str, before: _Namespace, routes: list[Route]) -> None:
        if SHARES.delay(namespace) <= 0 or namespace in self._waited:
            self._waited.discard(namespace)
            try:
                self._namespaces[namespace] = await limited(completed(before.compile(routes)), Limit(SHARES, namespace))
            except StepTooLong as error:
                log.error("gateway: Ingresses of namespace %s: %s; it is served as before", namespace, error)
            else:
                return
        if namespace not in self._waiting:
            self._waiting.add(namespace)
            asyncio.get_running_loop().call_later(SHARES.delay(namespace), self._resume, namespace)

    def _resume(self, namespace: str) -> None:
        self._waiting.discard(namespace)
        self._waited.add(namespace)
        self._again()

    def _for_unowned(self) -> Generator[int, None, ListenerTable]:
        """Return the table for hosts without an owner, of the routes of all namespaces; the same one if they are the same."""
        compiled = [each for _, found in sorted(self._namespaces.items()) for each in found.unowned]
        if _same(self._unowned[0], compiled):
            return self._unowned[1]
        table = ListenerTable()
        for each in compiled:
            yield from table.add(*each)
        self._unowned = compiled, table
        return table


def _by_namespace(routes: Sequence[Route]) -> Generator[int, None, dict[str, list[Route]]]:
    found: dict[str, list[Route]] = {}
    for number, route in enumerate(routes, 1):
        found.setdefault(route.namespace, []).append(route)
        if not number % 8:
            yield 1
    return found


def _same(before: Sequence[object], after: Sequence[object]) -> bool:
    return len(before) == len(after) and all(map(is_, before, after))
