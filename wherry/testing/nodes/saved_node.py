"""A simulated node in a file."""

from __future__ import annotations

import msgspec

from wherry.testing.nodes.node import SimulatedNode, State


class SavedNode(msgspec.Struct, omit_defaults=True):
    """One node."""

    name: str
    number: int
    capacity: dict[str, str]
    labels: dict[str, str] = {}
    state: State = "running"
    pressures: list[str] = []
    conditions: dict[str, str] = {}
    since: dict[str, str] = {}
    range: str = ""
    given: int = 0

    def node(self) -> SimulatedNode:
        """Return the node."""
        node = SimulatedNode(self.name, self.number, self.capacity, self.labels, self.state, set(self.pressures))
        node.since, node.conditions, node.range, node.given = self.since, self.conditions, self.range, self.given
        node.schedulable.set()
        return node


def saved(node: SimulatedNode) -> SavedNode:
    """Return a node for a file."""
    return SavedNode(
        node.name,
        node.number,
        dict(node.capacity),
        dict(node.labels),
        node.state,
        sorted(node.pressures),
        dict(node.conditions),
        dict(node.since),
        node.range,
        node.given,
    )
