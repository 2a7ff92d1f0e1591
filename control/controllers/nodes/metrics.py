"""Metrics of nodes and zones, with upstream's names (pkg/controller/nodelifecycle)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from control.controllers.nodes.zones import ZoneStates
from kube.counters import Counter, Gauge, before_scrape

NODE_EVICTIONS = Counter("node_collector_evictions", "Nodes whose pods began to be evicted.", "zone")
ZONE_SIZE = Gauge("node_collector_zone_size", "Nodes of a zone.", "zone")
ZONE_HEALTH = Gauge("node_collector_zone_health", "Percentage of a zone's nodes that are ready.", "zone")
UNHEALTHY = Gauge("node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not ready.", "zone")
_zones: list[ZoneStates] = []


@contextlib.contextmanager
def zones_shown(states: ZoneStates) -> Iterator[None]:
    """Count the nodes of zones at scrapes."""
    _zones.append(states)
    try:
        yield
    finally:
        _zones.remove(states)


def _update_zones() -> None:
    for gauge in (ZONE_SIZE, ZONE_HEALTH, UNHEALTHY):
        gauge.values = {}
    for states in _zones:
        for zone, size, not_ready in states.counts():
            ZONE_SIZE.set(zone, value=size)
            UNHEALTHY.set(zone, value=not_ready)
            ZONE_HEALTH.set(zone, value=100 * (size - not_ready) / size)


before_scrape(_update_zones)
