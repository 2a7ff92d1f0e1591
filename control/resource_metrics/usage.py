"""Computes usage from two scrapes of a node: CPU is the counter's increase over the time between them, memory the newer value.

A container that started between the scrapes is measured from its start, with a counter of zero. A container whose counter
decreased was restarted and is measured in the same way (metrics-server's pkg/storage has these rules).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from control.resource_metrics.sample import Container, NodeSample, Point

LEAST_WINDOW = 0.5
"""Minimum window of a rate, in seconds."""


class Usage(msgspec.Struct, frozen=True):
    """Usage over the `window` seconds that ended at `time`: cores, bytes."""

    time: float
    window: float
    cpu: float
    memory: float


class NodeUsage(msgspec.Struct, frozen=True):
    """The use of a node, and of each container on it that could be measured."""

    node: Usage | None = None
    containers: Mapping[Container, Usage] = msgspec.field(default_factory=dict)


def between(older: NodeSample | None, newer: NodeSample | None) -> NodeUsage:
    """Return the use between two samples."""
    if newer is None:
        return NodeUsage()
    node = _rate(older.node if older is not None else None, newer.node) if newer.node is not None else None
    before = older.containers if older is not None else {}
    containers = {}
    for key, point in newer.containers.items():
        measured = _rate(before.get(key), point)
        if measured is not None:
            containers[key] = measured
    return NodeUsage(node, containers)


def _rate(older: Point | None, newer: Point) -> Usage | None:
    if older is None or older.started != newer.started or older.cpu > newer.cpu:
        if older is None and not newer.started:
            return None
        # A start that lies long back says how much was used since then, not how much is used now.
        if not newer.started or (older is not None and newer.started < older.time):
            return None
        older = Point(newer.started, 0.0, 0.0, newer.started)
    window = newer.time - older.time
    if window < LEAST_WINDOW:
        return None
    return Usage(newer.time, window, (newer.cpu - older.cpu) / window, newer.memory)
