"""Limits on the connections of several tables together."""

from __future__ import annotations

import functools

from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable
from kube.serving.table_group import TableGroup

LIMITS = ServingLimits(connections=100, unread_bytes=1000)


class Clients:
    """Connections to a table, each from an address of its own, and those that were closed."""

    def __init__(self, group: TableGroup) -> None:
        self.table = ConnectionTable(LIMITS, group)
        self.closed: list[int] = []
        self.open: list[Connection | None] = []

    def connect(self, count: int = 1) -> None:
        for _ in range(count):
            number = len(self.open)
            self.open.append(self.table.add(f"192.0.2.{number}", functools.partial(self.closed.append, number)))

    def hold(self, number: int, size: int, *, head: bool = False) -> None:
        found = self.open[number]
        assert found is not None
        (self.table.hold_head if head else self.table.hold_answer)(found, size)


def test_the_table_with_most_connections_makes_room_for_those_of_others() -> None:
    group = TableGroup(10, 1 << 20)
    many, few = Clients(group), Clients(group)
    many.connect(10)
    few.connect(4)
    assert (len(many.table), len(few.table), group.connections) == (6, 4, 10)
    many.connect(3)
    assert len(few.table) == 4 and not few.closed and None not in few.open
    few.connect(10)
    assert group.connections == 10 and len(many.table) == len(few.table) == 5


def test_the_table_for_which_most_bytes_are_held_has_its_heaviest_connection_closed() -> None:
    group = TableGroup(100, 1200)
    greedy, other = Clients(group), Clients(group)
    greedy.connect(3)
    other.connect(2)
    greedy.hold(0, 300)
    greedy.hold(1, 500)
    other.hold(0, 300)
    assert not greedy.closed and group.buffered_bytes == 1100
    other.hold(1, 150, head=True)
    assert greedy.closed == [1] and not other.closed and group.buffered_bytes == 750


def test_a_table_without_connections_leaves_the_group() -> None:
    group = TableGroup(10, 1000)
    clients = Clients(group)
    clients.connect(3)
    clients.hold(0, 100)
    for each in clients.open:
        assert each is not None
        clients.table.remove(each)
    assert not group.connections and not group.buffered_bytes and not group._tables
