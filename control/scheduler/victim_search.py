"""Search for the victims of one pod over all nodes, in slices of a few milliseconds.

For each node that eviction could help, a dry run removes all pods of lower priority, and those that still fit beside the new
pod are added again (reprieved), the most important first. A slice ends between two checks: the dry run ends, and the next
slice removes again those that are not reprieved. A node that has changed by then is searched again.
Upstream searches a snapshot. Here the cluster may change between slices, so the victims that are chosen are searched once
more on one state, the others on the node being reprieved; if none are left, all nodes are searched again, a few times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from control.scheduler.algorithm import Algorithm
from control.scheduler.budget_violations import BudgetViolations
from control.scheduler.budgets import Budgets
from control.scheduler.cluster import Cluster
from control.scheduler.dry_run import DryRun
from control.scheduler.framework import Diagnosis
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.steps import OutOfSteps, Paused, SlicedSteps, Steps
from control.scheduler.unfinished import Unfinished
from control.scheduler.victims import Victims, importance

MOST_CHECKS, CHECKED_BYTES = 5000, 4096
"""Maximum number of checks in one attempt whether a pod fits a node; a pod counts once more for each 4096 bytes."""
REMOVED = 8
"""Removals of pods from a node that count as one check."""
MOST_SEARCHES = 3
"""Maximum number of searches of all nodes in one attempt: one is repeated if a change of the cluster leaves no victims."""


class _NodeSearch(msgspec.Struct):
    """The state of the search on one node."""

    node: NodeInfo
    generation: int
    lower: list[PodInfo]
    """Pods that may be evicted, the most important first."""
    violations: BudgetViolations
    violating: set[str] = msgspec.field(default_factory=set)
    prepared: int = 0
    order: list[PodInfo] | None = None
    """The pods as they are reprieved; None before it is known that the pod fits without them all."""
    next: int = 0
    victims: list[PodInfo] = msgspec.field(default_factory=list)

    def removed(self) -> list[PodInfo]:
        """Return the pods that are not reprieved."""
        return self.lower if self.order is None else self.victims + self.order[self.next :]


class VictimSearch:
    """The search for one pod: so many checks, the larger it is the fewer."""

    def __init__(
        self, pod: PodInfo, diagnosis: Diagnosis, algorithm: Algorithm, cluster: Cluster, budgets: Budgets
    ) -> None:
        self._pod, self._algorithm, self._cluster, self._budgets = pod, algorithm, cluster, budgets
        share, least = algorithm.profile.candidates
        self._most = max(least, len(cluster.order) * share // 100)
        names = [name for name, rejection in diagnosis.rejections.items() if not rejection.unresolvable]
        self._start = cluster.preemption_start % len(names) if names else 0
        self._names = names[self._start :] + names[: self._start]
        self._price = 1 + pod.size // CHECKED_BYTES
        self._dry_run: DryRun | None = None
        self._started = 0
        self._start_search()
        self.interrupted = False
        """True if the cluster may have changed since the search started."""

    def _start_search(self) -> None:
        self._started += 1
        self._steps = SlicedSteps(MOST_CHECKS)
        self._visit: _NodeSearch | None = None
        self._searched = 0
        self.found: list[Victims] = []
        self.finished = False

    def restart(self) -> bool:
        """Search all nodes again, if that has not been done too often."""
        if self._started < MOST_SEARCHES:
            self._start_search()
        return not self.finished

    async def run(self) -> None:
        """Search to the end, one slice in an iteration of the event loop."""
        self.interrupted = True
        while not self.finished:
            async with self._cluster.searching:
                await asyncio.sleep(0)
                try:
                    self.advance()
                    continue
                except Unfinished as unfinished:
                    more = unfinished
            await more.go_on()

    def advance(self) -> None:
        """Search for a slice; raises Unfinished if a plugin has to compute more."""
        self._steps.start()
        try:
            self._search()
        except Paused:
            return
        except OutOfSteps:
            self._cluster.preemption_start = self._start + max(self._searched, 1)  # the next attempt begins there
        else:
            self._cluster.preemption_start = 0
        self.finished, self._visit = True, None

    def _search(self) -> None:
        while self._searched < len(self._names):
            node = self._cluster.nodes.get(self._names[self._searched])
            found = self._victims_on(node) if node is not None else None
            if found is not None:
                self.found.append(found)
            self._searched += 1
            self._visit = None
            # Upstream (DryRunPreemption): enough candidates, one of which violates no budget.
            if len(self.found) >= self._most and any(not victims.violations for victims in self.found):
                return
            if self._searched < len(self._names):
                self._steps.pause()

    def _node_search(self, node: NodeInfo) -> _NodeSearch | None:
        """Return the state of the search on a node; None if it has no pod of lower priority."""
        visit = self._visit
        if visit is not None and visit.node is node and visit.generation == node.generation:
            return visit
        lower = sorted((p for p in node.pods.values() if p.priority < self._pod.priority), key=importance)
        if not lower:
            return None
        self._visit = visit = _NodeSearch(node, node.generation, lower, BudgetViolations(lower))
        self._steps.take(1 + len(lower) // REMOVED + sum(p.size // CHECKED_BYTES for p in lower))
        return visit

    def _victims_on(self, node: NodeInfo) -> Victims | None:
        """Return whom to evict from a node; raises OutOfSteps, Paused, Unfinished."""
        visit = self._node_search(node)
        if visit is None:
            return None
        visit.violating = visit.violations.count(self._budgets, self._steps)
        filters = self._filters()
        while visit.prepared < len(visit.lower):
            filters.prepare(visit.lower[visit.prepared], node)
            visit.prepared += 1
            self._steps.pause()
        if not self._reprieve(visit, filters, self._steps) or not visit.victims:
            return None
        victims = sorted(visit.victims, key=importance)
        return Victims(node.name, tuple(victims), sum(1 for p in victims if p.key in visit.violating))

    def _filters(self) -> DryRun:
        if self._dry_run is None or not self._dry_run.valid:
            self._dry_run = self._algorithm.dry_run(self._pod)
        return self._dry_run

    def _reprieve(self, visit: _NodeSearch, filters: DryRun, steps: SlicedSteps) -> bool:
        """Find the victims of a visit; return whether the pod fits without all pods of lower priority."""
        node = visit.node
        removed = {other.key: other for other in visit.removed()}
        with steps.resumption():
            for other in removed.values():
                filters.remove(other, node)
        try:
            if visit.order is None:
                if not self._fits(filters, node, steps):
                    return False
                visit.order = sorted(visit.lower, key=lambda p: p.key not in visit.violating)
            while visit.next < len(visit.order):
                other = visit.order[visit.next]
                filters.add(removed.pop(other.key), node)
                if not self._fits(filters, node, steps):
                    filters.remove(other, node)
                    removed[other.key] = other
                    visit.victims.append(other)
                visit.next += 1
                if visit.next < len(visit.order):
                    steps.pause()
            return True
        finally:
            for other in removed.values():
                filters.add(other, node)
            node.generation = visit.generation  # the node is as it was

    def _fits(self, filters: DryRun, node: NodeInfo, steps: Steps) -> bool:
        steps.take(self._price)
        return filters.fits(node)

    def cheapest(self, found: Sequence[Victims]) -> Victims | None:
        """Return the victims that cost least, of those that are right for the cluster as it is; raises Unfinished."""
        steps = SlicedSteps(MOST_CHECKS)
        for victims in sorted(found, key=lambda victims: victims.cost):
            current = self._current(victims, steps) if self.interrupted else victims
            if current is not None:
                return current
            if steps.over:
                break
        return None

    def _current(self, found: Victims, steps: SlicedSteps) -> Victims | None:
        """Search victims once more among those that were found; None if one has gone, or the pod no longer fits."""
        node = self._cluster.nodes.get(found.node)
        if node is None:
            return None
        there = [node.pods.get(victim.key) for victim in found.pods]
        pods = [pod for pod, victim in zip(there, found.pods, strict=True) if pod is not None and pod.uid == victim.uid]
        if len(pods) < len(there):
            return None
        if found not in self.found:  # an extender knows better which of the victims are needed
            return found
        visit = _NodeSearch(node, node.generation, pods, BudgetViolations(()))
        try:
            if not self._reprieve(visit, self._filters(), steps):
                return None
        except Paused:
            visit.victims = visit.removed()  # the others were needed when they were found
        except OutOfSteps:
            return None
        return (
            Victims(found.node, tuple(sorted(visit.victims, key=importance)), found.violations)
            if visit.victims
            else None
        )
