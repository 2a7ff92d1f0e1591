"""Zone states, and the rate limits for evictions from nodes that are not ready, for each zone.

If many nodes of a zone fail at once, the likely cause is the network: evictions slow down. If no node of any zone is
ready (full disruption), the likely cause is the control plane: evictions stop. Upstream: ComputeZoneState,
handleDisruption, setLimiterInZone and RateLimitedTimedQueue of pkg/controller/nodelifecycle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

import msgspec

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
EXCLUDED = "node.kubernetes.io/exclude-disruption"
"""Label of nodes that do not count for the state of their zone. Its value does not matter."""

NORMAL, PARTIAL, FULL = "Normal", "PartialDisruption", "FullDisruption"


class LifecycleSettings(msgspec.Struct, frozen=True):
    """Upstream's NodeLifecycleController configuration."""

    eviction_rate: float = 0.1
    secondary_eviction_rate: float = 0.01
    """Nodes a second that may be tainted for eviction in a zone that is normal, and in one in partial disruption."""
    unhealthy_zone_threshold: float = 0.55
    """Share of a zone's nodes that are not ready from which the zone is in partial disruption."""
    large_cluster_size_threshold: int = 50
    """Nodes up to which a zone in partial disruption has no evictions."""
    monitor_grace_period: float = 50.0
    startup_grace_period: float = 60.0
    """Seconds without a heartbeat until a node's conditions become Unknown; the second for nodes that never posted a status."""


DEFAULTS = LifecycleSettings()


def zone_of(labels: dict[str, str]) -> str:
    return f"{labels.get(REGION, '')}:{labels.get(ZONE, '')}"


def zone_state(size: int, not_ready: int, settings: LifecycleSettings = DEFAULTS) -> str:
    """Return the state of a zone of `size` nodes of which some are not ready."""
    if not_ready and not_ready == size:
        return FULL
    if not_ready > 2 and not_ready / size >= settings.unhealthy_zone_threshold:
        return PARTIAL
    return NORMAL


def eviction_rate(state: str, size: int, *, full_disruption: bool, settings: LifecycleSettings = DEFAULTS) -> float:
    """Return the nodes a second that may be tainted for eviction in a zone (upstream: setLimiterInZone)."""
    if full_disruption:
        return 0.0
    if state == PARTIAL:
        return settings.secondary_eviction_rate if size > settings.large_cluster_size_threshold else 0.0
    return settings.eviction_rate


class ZoneStates:
    """Numbers of nodes, and of those that are not ready, in each zone, updated as nodes change.

    The state of a zone is needed for each node that fails. Counting all nodes each time would cost the square of their
    number when many fail together.
    """

    def __init__(self, settings: LifecycleSettings = DEFAULTS) -> None:
        self._settings = settings
        self._nodes: dict[str, tuple[str, bool]] = {}
        self._size: Counter[str] = Counter()
        self._not_ready: Counter[str] = Counter()
        self._ready_zones = 0
        """Number of zones with a node that is ready."""
        self._changed: set[str] = set()

    def set_node(self, node: str, zone: str, *, ready: bool) -> None:
        """Record a node's zone and readiness."""
        if self._nodes.get(node) == (zone, ready):
            return
        self.remove_node(node)
        self._nodes[node] = zone, ready
        self._count(zone, 1, not ready)

    def remove_node(self, node: str) -> None:
        if (was := self._nodes.pop(node, None)) is None:
            return
        zone, ready = was
        self._count(zone, -1, -(not ready))

    def _count(self, zone: str, nodes: int, not_ready: int) -> None:
        self._ready_zones -= self._size[zone] > self._not_ready[zone]
        self._size[zone] += nodes
        self._not_ready[zone] += not_ready
        self._ready_zones += self._size[zone] > self._not_ready[zone]
        if not self._size[zone]:
            del self._size[zone], self._not_ready[zone]
        self._changed.add(zone)

    @property
    def full_disruption(self) -> bool:
        """True if there are nodes, and none of any zone is ready."""
        return bool(self._size) and not self._ready_zones

    def counts(self) -> Iterator[tuple[str, int, int]]:
        """Yield each zone with the number of its nodes, and of those that are not ready."""
        for zone, size in self._size.items():
            yield zone, size, self._not_ready[zone]

    def take_changed(self) -> set[str]:
        """Return the zones whose counts have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def eviction_rate(self, zone: str) -> float:
        """Return the nodes a second that may be tainted for eviction in a zone now."""
        state = zone_state(self._size[zone], self._not_ready[zone], self._settings)
        return eviction_rate(state, self._size[zone], full_disruption=self.full_disruption, settings=self._settings)


class ZoneQueue:
    """Rate-limited queue of one zone's nodes that wait for their NoExecute taint. The burst is one node."""

    def __init__(self, rate: float = DEFAULTS.eviction_rate) -> None:
        self._waiting: dict[str, int] = {}
        """Nodes in their order, with ascending numbers, which are in `_numbers` too: thousands may fail together."""
        self._numbers: list[int] = []
        self._rate, self._free_at = rate, 0.0

    def add(self, node: str) -> None:
        if node not in self._waiting:
            number = self._waiting[node] = self._numbers[-1] + 1 if self._numbers else 0
            self._numbers.append(number)

    def remove(self, node: str) -> None:
        number = self._waiting.pop(node, None)
        if number is not None:
            del self._numbers[bisect_left(self._numbers, number)]

    def __contains__(self, node: str) -> bool:
        return node in self._waiting

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._waiting))

    def set_rate(self, rate: float, now: float) -> bool:
        """Set the nodes a second, 0 for none; return whether the rate changed.

        If the old rate would have delayed a node now, the new one delays the next node (upstream: SwapLimiter).
        """
        if rate == self._rate:
            return False
        delayed = not self._rate or now < self._free_at
        self._free_at = now + 1 / rate if rate and delayed else 0.0
        self._rate = rate
        return True

    def try_take(self, node: str, now: float) -> float:
        """Remove the node and return 0 if it may be tainted now, else return the seconds until the next attempt."""
        if not self._rate:
            return 10.0
        before = bisect_left(self._numbers, self._waiting[node])
        if now < self._free_at:
            return self._free_at - now + before / self._rate
        if before:
            return before / self._rate
        self.remove(node)
        self._free_at = now + 1 / self._rate
        return 0.0
