"""Rate limits for evictions of pods from failing nodes, zone by zone.

If many nodes of a zone fail at once it is more likely the network than the nodes: then eviction slows down, or stops where
no zone is left that works. Upstream: NodeLifecycleController's zone states and rate-limited queues.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"

NORMAL, PARTIAL, FULL = "Normal", "PartialDisruption", "FullDisruption"


@dataclass(frozen=True, slots=True)
class LifecycleSettings:
    """Upstream's NodeLifecycleController configuration."""

    eviction_rate: float = 0.1
    secondary_rate: float = 0.01
    """Nodes a second, in a zone that works and in one that is partly down."""
    unhealthy_share: float = 0.55
    """Share of a zone's nodes that must be down for it to count as partly down."""
    large_zone: int = 50
    """Up to so many nodes a zone that is partly down is left alone."""
    grace: float = 50.0
    startup_grace: float = 60.0
    """Seconds of silence that a node is given; the second: one that has never posted a status."""


USUAL = LifecycleSettings()


def zone_of(labels: dict[str, str]) -> str:
    return f"{labels.get(REGION, '')}:{labels.get(ZONE, '')}"


def state_of(size: int, down: int, settings: LifecycleSettings = USUAL) -> str:
    """Return the state of a zone of `size` nodes of which `down` are not ready."""
    if down and down == size:
        return FULL
    if down > 2 and down / size >= settings.unhealthy_share:
        return PARTIAL
    return NORMAL


def rate(state: str, size: int, all_down: bool, settings: LifecycleSettings = USUAL) -> float:
    """Return the nodes a second that may be tainted in a zone."""
    if all_down:
        return 0.0
    if state == PARTIAL:
        return settings.secondary_rate if size > settings.large_zone else 0.0
    return settings.eviction_rate


class Members:
    """Numbers of nodes and of failed nodes in each zone, counted as nodes change.

    Each node that fails asks how its zone does: to look at all nodes then would cost a cluster as many looks as it has
    nodes, squared, whenever they come or fail together.
    """

    def __init__(self, settings: LifecycleSettings = USUAL) -> None:
        self._settings = settings
        self._nodes: dict[str, tuple[str, bool]] = {}
        self._size: Counter[str] = Counter()
        self._down: Counter[str] = Counter()

    def saw(self, node: str, zone: str, ready: bool) -> None:
        """Process a node's current state."""
        if self._nodes.get(node) == (zone, ready):
            return
        self.gone(node)
        self._nodes[node] = zone, ready
        self._size[zone] += 1
        self._down[zone] += not ready

    def gone(self, node: str) -> None:
        if (was := self._nodes.pop(node, None)) is None:
            return
        zone, ready = was
        self._size[zone] -= 1
        self._down[zone] -= not ready
        if not self._size[zone]:
            del self._size[zone], self._down[zone]

    def rate(self, zone: str) -> float:
        """Return the nodes a second that may be tainted in a zone as the zones are now."""
        all_down = all(self._state(each) == FULL for each in self._size)
        return rate(self._state(zone), self._size[zone], all_down, self._settings)

    def _state(self, zone: str) -> str:
        return state_of(self._size[zone], self._down[zone], self._settings)


class ZoneQueue:
    """The nodes of one zone that wait for their NoExecute taint, let through at a rate, one at once at first."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._free_at = 0.0

    def add(self, node: str) -> None:
        if node not in self._waiting:
            self._waiting.append(node)

    def remove(self, node: str) -> None:
        if node in self._waiting:
            self._waiting.remove(node)

    def __contains__(self, node: str) -> bool:
        return node in self._waiting

    def take(self, node: str, rate_: float, now: float) -> float:
        """Return 0 where the node may go now, or the seconds after which to ask again."""
        if not rate_:
            return 10.0
        if now < self._free_at:
            return self._free_at - now + self._waiting.index(node) / rate_
        if self._waiting[0] != node:
            return self._waiting.index(node) / rate_
        self._waiting.popleft()
        self._free_at = now + 1 / rate_
        return 0.0
