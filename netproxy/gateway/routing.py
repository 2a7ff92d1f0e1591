"""Routes of one port of a Gateway, compiled: from a request's host to the listener, and from there to the rule.

The listener with the most specific hostname owns a host: what its routes do not serve, no other listener serves. Among the
routes of a listener, those of a more specific hostname come first. `*.example.com` covers any number of labels, in an Ingress
one. Those of Ingresses serve only the hosts of their namespace, and are compiled once for all listeners.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from kube.gateway.model import HostOwners, Listener
from kube.gateway.steps import completed
from netproxy.gateway.errors import Refused
from netproxy.gateway.ingress_tables import IngressListener, IngressTable, IngressTables
from netproxy.gateway.listener_table import ListenerTable, suffixes
from netproxy.gateway.path_table import Found, conditions
from netproxy.gateway.request import RoutedRequest


class PortTable:
    """The listeners of a port, by hostname; `port` is the listeners' port, not the one that the node listens on."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._listeners: dict[str, ListenerTable | IngressListener] = {}

    def add(self, listener: Listener) -> Generator[int, None, None]:
        """Add a listener with its routes; yield how many conditions were added."""
        self._listeners[listener.hostname.lower()] = table = ListenerTable()
        for route in listener.routes:
            yield from table.add(route, (yield from conditions(route)))
            yield 1

    def add_ingresses(self, listener: Listener, table: IngressTable) -> None:
        """Add a listener for Ingresses."""
        self._listeners[listener.hostname.lower()] = IngressListener(table, listener.namespace)

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


async def compile_listeners(listeners: Iterable[Listener], ingresses: IngressTables) -> dict[int, PortTable]:
    """Return the tables of a Gateway's ports, by listeners' ports; yields to the event loop between conditions."""
    shared: dict[HostOwners, IngressTable] = {}
    listeners = tuple(listeners)
    for each in listeners:
        if each.owners is not None and each.owners not in shared:
            shared[each.owners] = await ingresses.compile(each.owners, each.routes)
    return await completed(_compile(listeners, shared))


def _compile(
    listeners: Iterable[Listener], shared: dict[HostOwners, IngressTable]
) -> Generator[int, None, dict[int, PortTable]]:
    ports: dict[int, PortTable] = {}
    for listener in listeners:
        table = ports.setdefault(listener.port, PortTable(listener.port))
        if listener.owners is None:
            yield from table.add(listener)
        else:
            table.add_ingresses(listener, shared[listener.owners])
            yield 1
    return ports
