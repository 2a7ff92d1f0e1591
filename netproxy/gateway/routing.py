"""Routes of one port of a Gateway, compiled: from a request's host to the listener, and from there to the rule.

The listener with the most specific hostname owns a host: what its routes do not serve, no other listener serves. Among the
routes of a listener, those of a more specific hostname come first. `*.example.com` covers any number of labels, in an Ingress
one. Those of Ingresses serve only the hosts of their namespace, and are compiled once for all listeners.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from kube.gateway.hostnames import parent
from kube.gateway.model import HostOwners, Listener, Match, Route
from netproxy.gateway.errors import Refused
from netproxy.gateway.path_table import Found, PathTable
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.rule import CompiledRule

PER_ITERATION = 128
"""Conditions that are compiled between two iterations of the event loop, each in some microseconds."""


def suffixes(host: str) -> Iterator[str]:
    """Yield the wildcards that cover a hostname, the most specific first."""
    dot = host.find(".")
    while dot >= 0:
        yield f"*{host[dot:]}"
        dot = host.find(".", dot + 1)


class ListenerTable:
    """The routes of a listener, by hostname."""

    __slots__ = ("_hosts", "_one_label")

    def __init__(self) -> None:
        self._hosts: dict[str, PathTable] = {}
        self._one_label: dict[str, PathTable] = {}

    def add(self, route: Route) -> Iterator[int]:
        """Add a route; yields after each rule how many conditions were added."""
        tables = [
            (self._one_label if route.single_label and name.startswith("*") else self._hosts).setdefault(
                name, PathTable()
            )
            for name in map(str.lower, route.hostnames or ("",))
        ]
        name = f"{route.namespace}/{route.name}"
        for number, rule in enumerate(route.rules):
            compiled = CompiledRule(route, rule)
            for index, match in enumerate(rule.matches or (Match(),)):
                for table in tables:
                    table.add(match, (route.created, name, number, index), compiled)
            yield len(tables) * len(rule.matches)

    def find(self, request: RoutedRequest) -> Found | None:
        """Return the rule for a request; Refused if that takes too many steps."""
        for table in self._tables(request.target.host):
            if (found := table.find(request)) is not None:
                return found
        return None

    def owner(self, host: str) -> str:
        """Return the namespace of a host's routes, "" if they are of several or there are none."""
        table = next(self._tables(host), None)
        return table.namespace or "" if table is not None else ""

    def _tables(self, host: str) -> Iterator[PathTable]:
        hosts = self._hosts
        if (table := hosts.get(host)) is not None and host:
            yield table
        first = True
        for suffix in suffixes(host):
            if first and (table := self._one_label.get(suffix)) is not None:
                yield table
            first = False
            if (table := hosts.get(suffix)) is not None:
                yield table
        if (table := hosts.get("")) is not None:
            yield table


class IngressTable:
    """The routes of all Ingresses: of each namespace for the hosts that it owns, and those for hosts without an owner."""

    __slots__ = ("_anybody", "_namespaces", "_owners")

    def __init__(self, owners: HostOwners) -> None:
        self._owners = owners.namespaces
        self._namespaces: dict[str, ListenerTable] = {}
        self._anybody = ListenerTable()

    def add(self, route: Route) -> Iterator[int]:
        """Add a route; yields after each rule how many conditions were added."""
        yield from self._namespaces.setdefault(route.namespace, ListenerTable()).add(route)
        if not route.hostnames:
            yield from self._anybody.add(route)

    def find(self, request: RoutedRequest, namespace: str) -> Found | None:
        """Return the rule for a request, only of a namespace if there is one; Refused if that takes too many comparisons."""
        owner = self.owner(request.target.host, namespace)
        if owner and namespace not in ("", owner):
            return None
        table = self._namespaces.get(owner) if owner else self._anybody
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


class PortTable:
    """The listeners of a port, by hostname; `port` is the listeners' port, not the one that the node listens on."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._listeners: dict[str, ListenerTable | IngressListener] = {}

    def add(self, listener: Listener, shared: dict[HostOwners, IngressTable]) -> Iterator[int]:
        """Add a listener with its routes; yields after each rule how many conditions were added.

        `shared` are the tables of Ingresses that are compiled already.
        """
        host, owners = listener.hostname.lower(), listener.owners
        table: ListenerTable | IngressTable
        if owners is None:
            self._listeners[host] = table = ListenerTable()
        else:
            known = shared.get(owners)
            table = shared[owners] = known or IngressTable(owners)
            self._listeners[host] = IngressListener(table, listener.namespace)
            if known is not None:
                return
        for route in listener.routes:
            yield from table.add(route)

    def listener(self, host: str) -> ListenerTable | IngressListener | None:
        """Return the listener of a hostname."""
        found = self._listeners.get(host)
        if found is not None:
            return found
        for suffix in suffixes(host):
            if (found := self._listeners.get(suffix)) is not None:
                return found
        return self._listeners.get("")

    def owner(self, host: str) -> str:
        """Return the namespace of a host's routes, "" if they are of several or there are none."""
        listener = self.listener(host)
        return listener.owner(host) if listener is not None else ""

    def find(self, request: RoutedRequest, server_name: str | None) -> Found:
        """Return the rule for a request; Refused if there is none. `server_name`: of the TLS handshake, None without TLS."""
        listener = self.listener(request.target.host)
        if server_name is not None and listener is not self.listener(server_name):
            raise Refused(421, "the connection was established for another host")
        if listener is None or (found := listener.find(request)) is None:
            raise Refused(404, "no route for this request")
        return found


async def compile_listeners(listeners: Iterable[Listener]) -> dict[int, PortTable]:
    """Return the tables of a Gateway's ports, by listeners' ports; yields to the event loop between rules."""
    ports: dict[int, PortTable] = {}
    shared: dict[HostOwners, IngressTable] = {}
    count = 0
    for listener in listeners:
        for added in ports.setdefault(listener.port, PortTable(listener.port)).add(listener, shared):
            count += 1 + added
            if count >= PER_ITERATION:
                count = 0
                await asyncio.sleep(0)
    return ports
