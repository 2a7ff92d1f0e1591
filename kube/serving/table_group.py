"""Limits on the connections of several tables together: those of one process, whose clients share only its memory.

Each table belongs to other clients (at a gateway, to those of one namespace), and has limits of its own. Where all tables
together have too much, connections of the table that has most are closed, for those of any other one.
"""

from __future__ import annotations

import os
from typing import Protocol

CONNECTION_BYTES = 32 << 10
"""Memory of a connection with TLS."""
SHARE = 16
"""Divisor of the machine's memory: the share of all connections, and of what is held for them."""
LEAST_CONNECTIONS, LEAST_BYTES = 8192, 256 << 20
"""Limits on a machine with little memory."""


class Member(Protocol):
    """A table of a group."""

    def __len__(self) -> int:
        """Return the number of connections."""

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes that are held for clients."""

    def make_room(self) -> bool:
        """Close a connection; return False if there is none."""

    def close_heaviest(self) -> bool:
        """Close the connection that holds most; return False if there is none."""


class TableGroup:
    """Tables with limits on their connections, and on the bytes that are held for these, in all."""

    def __init__(self, connections: int, held: int) -> None:
        self._most, self._most_bytes = connections, held
        self._tables: dict[Member, tuple[int, int]] = {}
        """Numbers of connections and of bytes by the tables that have any."""
        self.connections = self.held = 0

    def record(self, table: Member) -> None:
        """Record what a table has now."""
        before = self._tables.pop(table, (0, 0))
        now = len(table), table.buffered_bytes
        self.connections += now[0] - before[0]
        self.held += now[1] - before[1]
        if now[0]:
            self._tables[table] = now

    def make_room(self, table: Member) -> bool:
        """Make room for one more connection of a table, in the table with most; return False if there is none."""
        while self.connections >= self._most:
            if not max(self._tables, key=lambda each: (len(each), each is table)).make_room():
                return False
        return True

    def limit_bytes(self) -> None:
        """Close the connections that hold most, of the table for which most is held, while it is too much in all."""
        while self.held > self._most_bytes:
            if not max(self._tables, key=lambda each: each.buffered_bytes).close_heaviest():
                return


def of_process(descriptors: int) -> TableGroup:
    """Return the limits for a process that may have so many connections by its descriptors."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    connections = min(descriptors, max(LEAST_CONNECTIONS, memory // SHARE // CONNECTION_BYTES))
    return TableGroup(connections, max(LEAST_BYTES, memory // SHARE))
