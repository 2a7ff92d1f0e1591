"""One index: counts of the pods that a selection or affinity terms match, by node.

Pods that have not been compared yet are `late`: all when the index is new, and those that come while there are others, or if a
comparison may take long. They are compared in slices (`compare_late`); a late pod that leaves its node is removed. So the
counts are right when no pod is late, and only then the index is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from control.controllers.step_counter import STEPS_PER_ITERATION, StepCounter, selects
from control.event_loop import offload
from control.event_loop.pacing import TimeSlice
from control.scheduler.node_counts import NodeCounts
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.pod_selection import PodSelection
from control.scheduler.podinfo import PodInfo
from control.scheduler.term_sets import FEW, LabelsOf, TermSet

LARGE = 32
"""Weight of an index of many terms."""
SIMPLE = 8
"""Requirements up to which comparing a pod with a selector takes a microsecond or two."""
COMPARED_AT_ONCE = 256
"""Requirements of a selector up to which it is compared with a pod at once."""
COUNTED_AT_ONCE = 1024
"""Pods, times the weight of the index, up to which they are compared in one step."""


class PodIndex:
    """Counts that follow the pods. `weight`: how much of the room for indexes it takes; `size`: bytes of what it selects by."""

    in_parts = by_namespace_labels = False
    """True if a comparison with a pod may take long; if terms choose namespaces by their labels."""

    def __init__(self, *, few: bool, size: int) -> None:
        self.weight, self.size = 1 if few else LARGE, size
        self.counted = 0
        """Bytes of the counts in `size`."""
        self.late: dict[PodInfo, NodeInfo] = {}

    def concerns(self, pod: PodInfo) -> bool:
        """Return False for a pod that is not counted whatever its labels."""
        return True

    def follow(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Count a pod that is added to a node (1), now or later, or removed from it (-1)."""
        if sign < 0:
            if self.late.pop(pod, None) is None:
                self.move(pod, node, sign)
        elif not self.late and not self.in_parts:
            self.move(pod, node, sign)
        elif self.concerns(pod):
            self.late[pod] = node

    def move(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Compare a pod and count it."""
        raise NotImplementedError

    def move_in_dry_run(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Count a pod that a dry run removes, adds again, or adds and removes again."""
        self.move(pod, node, sign)

    def counts(self) -> Iterable[NodeCounts]:
        """Return all counts."""
        raise NotImplementedError

    def counts_at_once(self, pods: int) -> bool:
        """Return whether so many pods can be compared in one step, whatever their labels."""
        return not self.in_parts and pods * self.weight <= COUNTED_AT_ONCE

    @property
    def quick(self) -> bool:
        """True if the late pods can be compared in one step."""
        return self.counts_at_once(len(self.late))

    def settle(self) -> None:
        """Compare the late pods in one step."""
        while self.late:
            self.move(*self.late.popitem(), 1)

    async def compare_late(self, needed: Callable[[], bool]) -> None:
        """Compare the late pods in slices, as long as the index is needed."""
        time_slice = TimeSlice()
        while self.late and needed():
            if time_slice.over():
                await time_slice.turn()
            for _ in range(LARGE // self.weight):  # to ask for the time takes a tenth of a comparison
                if self.late:
                    self.move(*self.late.popitem(), 1)


class Matching(PodIndex):
    """Pods of a selection."""

    def __init__(self, selection: PodSelection) -> None:
        requirements = len(selection.selector.requirements)
        super().__init__(few=requirements <= SIMPLE, size=selection.size)
        self._selection = selection
        self.in_parts = requirements > COMPARED_AT_ONCE
        self._matched: set[PodInfo] = set()
        """The pods that count, if comparing them again may take long."""
        self.found = NodeCounts()

    def concerns(self, pod: PodInfo) -> bool:
        return self._selection.concerns(pod)

    def move(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        if not self.in_parts:
            if self._selection.matches(pod):
                self.found.add(node, sign)
        elif sign < 0:
            if pod in self._matched:
                self._matched.remove(pod)
                self.found.add(node, -1)
        elif self._selection.matches(pod):
            self._count(pod, node)

    def _count(self, pod: PodInfo, node: NodeInfo) -> None:
        self._matched.add(pod)
        self.found.add(node, 1)

    def move_in_dry_run(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        if pod in self._matched or self._selection.matches(pod):
            self.found.add(node, sign)

    def counts(self) -> Iterable[NodeCounts]:
        return (self.found,)

    @property
    def quick(self) -> bool:
        selector = self._selection.selector
        if not self.in_parts or len(self.late) > LARGE or not selector.prepared:
            return super().quick
        return sum(selector.cost(pod.labels) for pod in self.late) <= STEPS_PER_ITERATION

    async def compare_late(self, needed: Callable[[], bool]) -> None:
        if not self.in_parts:
            return await super().compare_late(needed)
        namespace, selector = self._selection.namespace, self._selection.selector
        if not selector.prepared:
            await offload.complete(namespace, selector.prepare)
        counter = StepCounter()
        while self.late and needed():
            pod = next(reversed(self.late))
            labels = pod.labels
            matches = False
            if self._selection.concerns(pod):
                matches = await selects(selector, labels, counter)
            else:
                await counter.count()
            if pod.labels is labels and (node := self.late.pop(pod, None)) is not None and matches:
                self._count(pod, node)


class AllMatching(PodIndex):
    """Pods that all terms match."""

    def __init__(self, terms: TermSet, labels_of: LabelsOf) -> None:
        super().__init__(few=len(terms.terms) <= FEW, size=terms.size)
        self._terms, self._labels_of = terms, labels_of
        self.by_namespace_labels = terms.by_namespace_labels
        self.found = NodeCounts()

    def move(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        if self._terms.all_match(pod.namespace, pod.labels, self._labels_of):
            self.found.add(node, sign)

    def counts(self) -> Iterable[NodeCounts]:
        return (self.found,)


class Weighed(PodIndex):
    """The weights of the terms that match pods, by topology key; of `keys`, the labels that nodes have."""

    def __init__(self, terms: TermSet, labels_of: LabelsOf, keys: Set[str]) -> None:
        super().__init__(few=len(terms.terms) <= FEW, size=terms.size)
        self._terms, self._labels_of, self._keys = terms, labels_of, keys
        self.by_namespace_labels = terms.by_namespace_labels
        self.found: dict[str, NodeCounts] = {}

    def move(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        for key, weight in self._terms.points(pod.namespace, pod.labels, self._labels_of, self._keys):
            counts = self.found.get(key)
            if counts is None:
                counts = self.found[key] = NodeCounts()
            counts.add(node, sign * weight)

    def counts(self) -> Iterable[NodeCounts]:
        return self.found.values()
