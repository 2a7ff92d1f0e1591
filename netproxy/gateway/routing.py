"""Routes of one port of a Gateway, compiled: from a request's host to the listener, and from there to the rule.

The listener with the most specific hostname owns a host: what its routes do not serve, no other listener serves. Among the
routes of a listener, those of a more specific hostname come first. `*.example.com` covers any number of labels, except in an
Ingress, where it covers one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from kube.gateway.model import Gateway, Listener, Match, Route
from netproxy.gateway.errors import Refused
from netproxy.gateway.limits import MATCHES
from netproxy.gateway.path_table import Found, PathTable
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.rule import CompiledRule

log = logging.getLogger(__name__)


def suffixes(host: str) -> Iterator[str]:
    """Yield the wildcards that cover a hostname, the most specific first."""
    dot = host.find(".")
    while dot >= 0:
        yield f"*{host[dot:]}"
        dot = host.find(".", dot + 1)


class ListenerTable:
    """The routes of a listener, by hostname."""

    __slots__ = ("_hosts", "_one_label", "hostname", "name")

    def __init__(self, listener: Listener, counts: dict[str, int]) -> None:
        """`counts`: conditions of each namespace's routes at the Gateway so far."""
        self.name, self.hostname = listener.name, listener.hostname
        self._hosts: dict[str, PathTable] = {}
        self._one_label: dict[str, PathTable] = {}
        for route in sorted(listener.routes, key=_age):
            if not self._add(route, counts):
                log.warning("%s %s/%s: too many rules in this namespace", route.kind, route.namespace, route.name)

    def _add(self, route: Route, counts: dict[str, int]) -> bool:
        hostnames = route.hostnames or ("",)
        count = counts.get(route.namespace, 0) + len(hostnames) * sum(len(rule.matches) for rule in route.rules)
        if count > MATCHES:
            return False
        counts[route.namespace] = count
        one_label = route.kind == "Ingress"
        tables = [
            (self._one_label if one_label and name.startswith("*") else self._hosts).setdefault(name, PathTable())
            for name in map(str.lower, hostnames)
        ]
        for number, rule in enumerate(route.rules):
            compiled = CompiledRule(route, rule)
            for index, match in enumerate(rule.matches or (Match(),)):
                for table in tables:
                    table.add(match, (*_age(route), number, index), compiled)
        return True

    def find(self, request: RoutedRequest) -> Found | None:
        """Return the rule for a request; Refused if that takes too many comparisons."""
        for table in self._tables(request.target.host):
            if (found := table.find(request)) is not None:
                return found
        return None

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


class PortTable:
    """The listeners of a port, by hostname; `port` is the listeners' port, not the one that the node listens on."""

    def __init__(self, gateway: Gateway, port: int, listeners: Iterable[Listener], counts: dict[str, int]) -> None:
        self.gateway = f"{gateway.namespace}/{gateway.name}"
        self.port = port
        self._listeners: dict[str, ListenerTable] = {}
        for listener in listeners:
            self._listeners.setdefault(listener.hostname.lower(), ListenerTable(listener, counts))

    def listener(self, host: str) -> ListenerTable | None:
        """Return the listener of a hostname."""
        found = self._listeners.get(host)
        if found is not None:
            return found
        for suffix in suffixes(host):
            if (found := self._listeners.get(suffix)) is not None:
                return found
        return self._listeners.get("")

    def find(self, request: RoutedRequest, server_name: str | None) -> Found:
        """Return the rule for a request; Refused if there is none. `server_name`: of the TLS handshake, None without TLS."""
        listener = self.listener(request.target.host)
        if server_name is not None and listener is not self.listener(server_name):
            raise Refused(421, "the connection was established for another host")
        if listener is None or (found := listener.find(request)) is None:
            raise Refused(404, "no route for this request")
        return found


def compile_gateway(gateway: Gateway) -> dict[int, PortTable]:
    """Return the tables of a Gateway's ports, by listeners' ports."""
    counts: dict[str, int] = {}
    ports: dict[int, list[Listener]] = {}
    for listener in gateway.listeners:
        ports.setdefault(listener.port, []).append(listener)
    return {port: PortTable(gateway, port, listeners, counts) for port, listeners in ports.items()}


def _age(route: Route) -> tuple[str, str]:
    return route.created, f"{route.namespace}/{route.name}"
