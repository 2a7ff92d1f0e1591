"""NodeResourcesFit: requests must fit into a node's free resources; the scoring strategy prefers full or empty nodes.

LeastAllocated spreads, MostAllocated packs, RequestedToCapacityRatio follows a curve of its own. Extended resources count
where a strategy names them and the pod requests them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from control.scheduler.configuration import ConfigurationError
from control.scheduler.framework import MAX_SCORE, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo

CPU_AND_MEMORY = (("cpu", 1), ("memory", 1))
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})

MOST_REASONS = 32
"""Resources of one node that are named as short: a pod may request tens of thousands, and there is a reason for each node."""


@functools.lru_cache(1024)
def _insufficient(resource: str) -> str:
    """Return a reason: one text for all nodes, each of which has it cached."""
    return f"Insufficient {resource}"


@dataclass(frozen=True, slots=True)
class Strategy:
    """A scoring strategy: what a node's use of a resource after the pod is worth, and which resources count how much."""

    score: Callable[[int, int], int]
    """(used, capacity) to 0 .. 100."""
    resources: tuple[tuple[str, int], ...] = CPU_AND_MEMORY
    skip_zero: bool = False
    """A resource without points does not take part in the average (the ratio's rule)."""


def least_allocated(used: int, capacity: int) -> int:
    return (capacity - used) * MAX_SCORE // capacity if used <= capacity else 0


def most_allocated(used: int, capacity: int) -> int:
    return min(used, capacity) * MAX_SCORE // capacity


def ratio(shape: Sequence[tuple[int, int]]) -> Callable[[int, int], int]:
    """Return the function that joins points (percent used, score 0 .. 10) with straight lines."""
    points = [(percent, score * MAX_SCORE // 10) for percent, score in shape]

    def score(used: int, capacity: int) -> int:
        percent = MAX_SCORE if used > capacity else used * 100 // capacity
        for index, (x, y) in enumerate(points):
            if percent <= x:
                if index == 0:
                    return y
                x0, y0 = points[index - 1]
                return y0 + (y - y0) * (percent - x0) // (x - x0)
        return points[-1][1]

    return score


def strategy(args: Mapping[str, Any]) -> Strategy:
    """Read NodeResourcesFitArgs.scoringStrategy; raises ConfigurationError."""
    given = args.get("scoringStrategy") or {}
    kind = given.get("type", "LeastAllocated")
    named = tuple((str(r["name"]), int(r.get("weight") or 1)) for r in given.get("resources") or ())
    resources = named or CPU_AND_MEMORY
    if any(not 1 <= weight <= 100 for _, weight in resources):
        raise ConfigurationError("scoringStrategy.resources: weights are from 1 to 100")
    if kind == "LeastAllocated":
        return Strategy(least_allocated, resources)
    if kind == "MostAllocated":
        return Strategy(most_allocated, resources)
    if kind == "RequestedToCapacityRatio":
        shape = [
            (int(p["utilization"]), int(p["score"]))
            for p in (given.get("requestedToCapacityRatio") or {}).get("shape") or ()
        ]
        if not shape:
            raise ConfigurationError("requestedToCapacityRatio.shape: at least one point must be specified")
        rising = all(a[0] < b[0] for a, b in itertools.pairwise(shape))
        if not rising or any(not (0 <= x <= 100 and 0 <= y <= 10) for x, y in shape):
            raise ConfigurationError(
                "requestedToCapacityRatio.shape: utilization must rise from 0 to 100, score is 0 to 10"
            )
        return Strategy(ratio(shape), resources, skip_zero=True)
    raise ConfigurationError(f'scoringStrategy.type: unsupported value "{kind}"')


def use(resource: str, pod: PodInfo, node: NodeInfo) -> tuple[int, int]:
    """Return (used after the pod, capacity) of a resource; cpu and memory with defaults for what is not requested."""
    if resource == "cpu":
        return node.score_cpu + pod.score_cpu, node.cpu_capacity
    if resource == "memory":
        return node.score_memory + pod.score_memory, node.memory_capacity
    if resource not in _NATIVE and not pod.others.get(resource):
        return 0, 0  # an extended resource matters only to pods that request it
    return node.used(resource) + pod.others.get(resource, 0), node.allocatable.get(resource, 0)


class NodeResourcesFit:
    name = "NodeResourcesFit"
    weight = 1
    normalized = ""

    def __init__(
        self,
        args: Mapping[str, Any] | None = None,
        ignored: frozenset[str] = frozenset(),
        backed: Callable[[str], bool] = lambda name: False,
    ) -> None:
        given = args or {}
        self._strategy = strategy(given)
        # The default is reckoned without detours: it is what nearly every verdict costs.
        self._usual = self._strategy.score is least_allocated and self._strategy.resources == CPU_AND_MEMORY
        self._backed = backed
        self._ignored = frozenset(given.get("ignoredResources") or ()) | ignored
        self._ignored_groups = frozenset(given.get("ignoredResourceGroups") or ())

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Name the resources that are short; more than the node has at all cannot be helped by preemption."""
        if (
            len(node.pods) < node.pod_capacity
            and pod.cpu <= node.cpu_capacity - node.cpu
            and pod.memory <= node.memory_capacity - node.memory
            and not pod.others
        ):
            return None
        reasons, hopeless = [], False
        if len(node.pods) + 1 > node.pod_capacity:
            reasons.append("Too many pods")
        if pod.cpu and pod.cpu > node.cpu_capacity - node.cpu:
            reasons.append("Insufficient cpu")
            hopeless |= pod.cpu > node.cpu_capacity
        if pod.memory and pod.memory > node.memory_capacity - node.memory:
            reasons.append("Insufficient memory")
            hopeless |= pod.memory > node.memory_capacity
        for resource, wanted in pod.others.items():
            if self._left_out(resource):
                continue
            capacity = node.allocatable.get(resource, 0)
            if not capacity and self._backed(resource):
                continue  # devices stand for it on this node
            if wanted > capacity - node.used(resource):
                reasons.append(_insufficient(resource))
                hopeless |= wanted > capacity
                if len(reasons) >= MOST_REASONS:
                    break
        return Rejection(self.name, tuple(reasons), hopeless) if reasons else None

    def _left_out(self, resource: str) -> bool:
        if resource in self._ignored:
            return True
        group, slash, _ = resource.partition("/")
        return bool(slash) and group in self._ignored_groups

    def applies(self, pod: PodInfo) -> bool:
        return True

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Average what the resources' use is worth, by their weights."""
        if self._usual and node.cpu_capacity and node.memory_capacity:
            cpu, memory = node.score_cpu + pod.score_cpu, node.score_memory + pod.score_memory
            return (least_allocated(cpu, node.cpu_capacity) + least_allocated(memory, node.memory_capacity)) // 2
        wanted = self._strategy
        total = weights = 0
        for resource, weight in wanted.resources:
            used, capacity = use(resource, pod, node)
            if not capacity:
                continue
            points = wanted.score(used, capacity)
            if points or not wanted.skip_zero:
                total += points * weight
                weights += weight
        if not weights:
            return 0
        return (2 * total + weights) // (2 * weights) if wanted.skip_zero else total // weights
