"""Limits on the connections of all tables of a process together, and on the bytes that are buffered for these.

Each table has limits of its own and belongs to other clients, at a gateway to those of one namespace. If the tables exceed a
limit together, connections of the table with most are closed, so that other tables have room for theirs.
"""

from __future__ import annotations

import os
from typing import Protocol

CONNECTION_BYTES = 32 << 10
"""Memory of a connection with TLS."""
SHARE = 16
"""Divisor of the machine's memory: the share of all connections, and of the bytes that are buffered for them."""
LEAST_CONNECTIONS, LEAST_BYTES = 8192, 256 << 20
"""Limits on a machine with little memory."""


class Member(Protocol):
    """A table of a group."""

    def __len__(self) -> int:
        """Return the number of connections."""

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes that are buffered for clients."""

    def make_room(self) -> bool:
        """Close a connection; return False if there is none."""

    def close_heaviest(self) -> bool:
        """Close the connection for which most bytes are buffered; return False if there is none."""


class TableGroup:
    """Tables with limits on the connections, and on the buffered bytes, of all of them."""

    def __init__(self, connections: int, buffered_bytes: int) -> None:
        self._most, self._most_bytes = connections, buffered_bytes
        self._tables: dict[Member, tuple[int, int]] = {}
        """Numbers of connections and of buffered bytes, as recorded last, of the tables that have connections."""
        self.connections = self.buffered_bytes = 0

    def record(self, table: Member) -> None:
        """Record a table's current numbers."""
        before = self._tables.pop(table, (0, 0))
        now = len(table), table.buffered_bytes
        self.connections += now[0] - before[0]
        self.buffered_bytes += now[1] - before[1]
        if now[0]:
            self._tables[table] = now

    def make_room(self, table: Member) -> bool:
        """Make room for one more connection of a table, in the table with most; return False if there is none."""
        while self.connections >= self._most:
            if not max(self._tables, key=lambda each: (len(each), each is table)).make_room():
                return False
        return True

    def limit_bytes(self) -> None:
        """Close the connections with most buffered bytes, of the table with most, until all tables are within the limit."""
        while self.buffered_bytes > self._most_bytes:
            if not max(self._tables, key=lambda each: each.buffered_bytes).close_heaviest():
                return


def of_process(descriptors: int) -> TableGroup:
    """Return the limits for a process whose file descriptors suffice for a number of connections."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    connections = min(descriptors, max(LEAST_CONNECTIONS, memory // SHARE // CONNECTION_BYTES))
    return TableGroup(connections, max(LEAST_BYTES, memory // SHARE))
