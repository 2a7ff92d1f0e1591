"""Incremental counts of pods by node and by topology domain.

Inter-pod affinity and topology spread ask again and again how many pods with certain labels are in each zone or on each
host. An index for such a selection is created at the first read, kept up to date by every pod that comes or goes, and
dropped when it has not been read for long; so no pod is placed by looking at all others.

Over many pods a new index is counted in slices (pod_index.py) while the pod that needs it waits. It is followed until that
pod is decided, also if other indexes take its place in the cache: so a pod that needs more of them than there is room for is
decided all the same.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Set
from functools import partial
from typing import TypeVar

from control.scheduler.node_counts import NodeCounts
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.pod_index import AllMatching, Matching, PodIndex, Weighed
from control.scheduler.pod_selection import ENTRY_BYTES, PodSelection
from control.scheduler.podinfo import PodInfo
from control.scheduler.term_sets import LabelsOf, TermSet
from control.scheduler.unfinished import Unfinished

MOST_INDEXES = 512
"""Indexes that are kept, each a cost of every pod that comes or goes; one of many terms counts as so many."""
MOST_BYTES = 32 << 20
"""Limit on the memory of all indexes: the texts that users select pods by, and entries of dictionaries."""
MOST_TRIES = 3
"""Maximum of counts in slices for one attempt; then one step counts. A change of namespace labels discards a count."""
HELD = "indexes"
"""Key of the indexes that a pod has waited for in its cycle_state: by their keys, and how often each was counted."""
Found = TypeVar("Found", bound=PodIndex)


class PodIndexes:
    """Recent terms, and the counts. `keys` are the labels that nodes have."""

    def __init__(self, labels_of: LabelsOf, keys: Set[str]) -> None:
        self._labels_of, self._keys = labels_of, keys
        self._indexes: OrderedDict[Hashable, PodIndex] = OrderedDict()
        self._room, self._size = MOST_INDEXES, 0
        self._evicted: weakref.WeakValueDictionary[Hashable, PodIndex] = weakref.WeakValueDictionary()
        """Indexes that have no room any more and that a pod waits with."""
        self._dry_run: list[tuple[PodInfo, NodeInfo, int]] = []
        """Pods that a dry run has removed (-1) and added (1)."""
        self._followed: dict[Hashable, int] = {}
        """By key of an index that was read during the dry run, how many of those it has counted."""

    def matching(
        self, selection: PodSelection, nodes: Collection[NodeInfo], incoming: PodInfo | None = None
    ) -> NodeCounts:
        """Return the counts of a selection, which stay up to date while it is read now and then.

        As the other methods do, it raises Unfinished if pods are to be compared in slices for the pod that `incoming` is.
        """
        return self._get(selection, partial(Matching, selection), nodes, incoming).found

    def all_matching(self, terms: TermSet, nodes: Collection[NodeInfo], incoming: PodInfo | None = None) -> NodeCounts:
        """Return the counts of the pods that all of the terms match."""
        return self._get(("all", terms), partial(AllMatching, terms, self._labels_of), nodes, incoming).found

    def weighed(
        self, terms: TermSet, nodes: Collection[NodeInfo], incoming: PodInfo | None = None
    ) -> Mapping[str, NodeCounts]:
        """Return by topology key the weights of the terms, each as often as there are pods that it matches."""
        return self._get(terms, partial(Weighed, terms, self._labels_of, self._keys), nodes, incoming).found

    def _get(
        self, key: Hashable, make: Callable[[], Found], nodes: Collection[NodeInfo], incoming: PodInfo | None
    ) -> Found:
        index: Found | None = self._known(key)  # type: ignore[assignment]
        new = index is None
        if index is None:
            index = make()
            if incoming is not None and not index.counts_at_once(sum(len(node.pods) for node in nodes)):
                raise Unfinished(partial(self._count_in_slices, key, make, nodes, incoming))
            index.late = _pods(nodes)
        elif index.late and incoming is not None and not index.quick:
            raise Unfinished(partial(self._count_in_slices, key, make, nodes, incoming))
        index.settle()
        if new:
            if self._dry_run:
                self._followed[key] = len(self._dry_run)
            self._put(key, index)
            self._resize(key, index)
        elif self._dry_run:
            self._follow_dry_run(key, index)
        return index

    async def _count_in_slices(
        self, key: Hashable, make: Callable[[], Found], nodes: Collection[NodeInfo], incoming: PodInfo
    ) -> None:
        """Compare the pods that are late in an index, which is new or is not; it is kept for the pod."""
        cached = incoming.cycle_state.setdefault(HELD, {})
        assert isinstance(cached, dict)
        index = self._known(key)
        if index is None:
            index = make()
            index.late = _pods(nodes)
            self._put(key, index)
        _, tries = cached.get(key, (None, 0))
        cached[key] = index, tries + 1
        if tries < MOST_TRIES:
            await index.compare_late(lambda: self._known(key) is index)
        else:
            index.settle()
        if self._known(key) is index:
            self._resize(key, index)

    def _known(self, key: Hashable) -> PodIndex | None:
        index = self._indexes.get(key)
        if index is not None:
            self._indexes.move_to_end(key)
        elif self._evicted and (index := self._evicted.pop(key, None)) is not None:
            self._put(key, index)
        return index

    def _put(self, key: Hashable, index: PodIndex) -> None:
        self._indexes[key] = index
        self._room -= index.weight
        self._size += index.size
        self._evict()

    def _resize(self, key: Hashable, index: PodIndex) -> None:
        """Add what the counts take to the size of an index that is kept."""
        taken = ENTRY_BYTES * sum(len(counts.per_node) for counts in index.counts()) - index.counted
        index.size += taken
        index.counted += taken
        self._size += taken
        self._evict()

    def _evict(self) -> None:
        while self._room < 0 or (self._size > MOST_BYTES and len(self._indexes) > 1):
            oldest = next(iter(self._indexes))
            self._evicted[oldest] = self._drop(oldest)

    def _drop(self, key: Hashable) -> PodIndex:
        index = self._indexes.pop(key)
        self._room += index.weight
        self._size -= index.size
        return index

    def _all(self) -> Iterable[PodIndex]:
        """Return all indexes, also those that a pod waits with."""
        return itertools.chain(self._indexes.values(), list(self._evicted.values()))

    def count(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Count a pod that was added to a node (1) or removed from it (-1)."""
        for index in self._indexes.values():
            index.follow(pod, node, sign)
        if self._evicted:
            for index in list(self._evicted.values()):
                index.follow(pod, node, sign)

    def count_for_dry_run(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Count a pod in the indexes that are read until `end_dry_run`, and in no others: a dry run reads few of them."""
        self._dry_run.append((pod, node, sign))

    def end_dry_run(self) -> None:
        """Count all pods as before: each is where it was."""
        for key in self._followed:
            index = self._indexes.get(key) or self._evicted.get(key)
            if index is not None:
                self._follow_dry_run(key, index)
        self._dry_run.clear()
        self._followed.clear()

    def _follow_dry_run(self, key: Hashable, index: PodIndex) -> None:
        for pod, node, sign in self._dry_run[self._followed.get(key, 0) :]:
            index.move_in_dry_run(pod, node, sign)
        self._followed[key] = len(self._dry_run)

    def node_gone(self, name: str) -> None:
        for index in self._all():
            for counts in index.counts():
                counts.per_node.pop(name, None)
                counts.forget_domains()

    def forget_domains(self) -> None:
        for index in self._all():
            for counts in index.counts():
                counts.forget_domains()

    def forget(self) -> None:
        """Recount indexes at their next use: node labels changed."""
        self._indexes.clear()
        self._evicted.clear()
        self._room, self._size = MOST_INDEXES, 0

    def namespaces_changed(self) -> None:
        """Count anew what is asked next and chooses namespaces by their labels."""
        for key in [key for key, index in self._indexes.items() if index.by_namespace_labels]:
            self._drop(key)
        for key in [key for key, index in self._evicted.items() if index.by_namespace_labels]:
            del self._evicted[key]


def _pods(nodes: Collection[NodeInfo]) -> dict[PodInfo, NodeInfo]:
    """Return the pods of nodes, with their nodes."""
    found: dict[PodInfo, NodeInfo] = {}
    for node in nodes:
        found.update(dict.fromkeys(node.pods.values(), node))
    return found
