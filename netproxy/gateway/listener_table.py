"""The routes of a listener, by hostname: of a more specific one first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube.gateway.model import Route
from netproxy.gateway.path_table import Condition, Found, PathTable
from netproxy.gateway.request import RoutedRequest


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

    def add(self, route: Route, conditions: Sequence[Condition]) -> Iterator[int]:
        """Add the conditions of a route; yields the number of tables after each."""
        tables = [
            (self._one_label if route.single_label and name.startswith("*") else self._hosts).setdefault(
                name, PathTable()
            )
            for name in map(str.lower, route.hostnames or ("",))
        ]
        for condition in conditions:
            for table in tables:
                table.add(condition)
            yield len(tables)

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
