"""Incremental counts of pods by node and by topology domain.

Inter-pod affinity and topology spread ask again and again how many pods with certain labels are in each zone or on each
host. An index for such a question is made at the first asking, kept up to date by every pod that comes or goes, and
dropped when it has not been asked for long; so no pod is placed by looking at all others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Protocol, TypeVar

from control import offload
from control.controllers.turns import Turn, selects
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.question import Question
from control.scheduler.term_sets import FEW, LabelsOf, TermSet

MOST_INDEXES, LARGE = 512, 32
"""Indexes that are kept, each a cost of every pod that comes or goes; one of many terms counts as so many."""


SIMPLE = 8
"""Requirements up to which comparing a pod with a selector takes a microsecond or two."""


class NodeCounts:
    """A number for each node, and its sums by topology domain."""

    def __init__(self) -> None:
        self.per_node: dict[str, int] = {}
        self._domains: dict[str, dict[str, int]] = {}

    def add(self, node: NodeInfo, number: int) -> None:
        _add(self.per_node, node.name, number)
        for key, sums in self._domains.items():
            value = node.labels.get(key)
            if value is not None:
                _add(sums, value, number)

    def domains(self, key: str, nodes: Mapping[str, NodeInfo]) -> dict[str, int]:
        """Return the sums by the values of a node label; domains with nothing are left out."""
        sums = self._domains.get(key)
        if sums is None:
            sums = self._domains[key] = {}
            for name, number in self.per_node.items():
                node = nodes.get(name)
                value = node.labels.get(key) if node else None
                if value is not None:
                    _add(sums, value, number)
        return sums

    def forget_domains(self) -> None:
        """Node labels changed: the sums are recomputed when needed."""
        self._domains.clear()


def _add(counts: dict[str, int], key: str, number: int) -> None:
    total = counts.get(key, 0) + number
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


class _Index(Protocol):
    """Counts that follow the pods. `weight`: how much of the room for indexes it takes."""

    weight: int
    by_namespace_labels: bool

    def move(self, pod: PodInfo, node: NodeInfo, sign: int) -> None: ...

    def counts(self) -> Iterable[NodeCounts]: ...


class _Matching:
    """Pods that a question means."""

    def __init__(self, matches: Callable[[PodInfo], bool], weight: int = 1, by_namespace_labels: bool = False) -> None:
        self._matches, self.weight, self.by_namespace_labels = matches, weight, by_namespace_labels
        self.found = NodeCounts()

    def move(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        if self._matches(pod):
            self.found.add(node, sign)

    def counts(self) -> Iterable[NodeCounts]:
        return (self.found,)


class _Weighed:
    """The weights of the terms that match pods, by topology key."""

    def __init__(self, terms: TermSet, labels_of: LabelsOf, keys: Set[str]) -> None:
        self._terms, self._labels_of, self._keys = terms, labels_of, keys
        self.weight, self.by_namespace_labels = _weight(terms), terms.by_namespace_labels
        self.found: dict[str, NodeCounts] = {}

    def move(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        for key, weight in self._terms.points(pod.namespace, pod.labels, self._labels_of, self._keys):
            counts = self.found.get(key)
            if counts is None:
                counts = self.found[key] = NodeCounts()
            counts.add(node, sign * weight)

    def counts(self) -> Iterable[NodeCounts]:
        return self.found.values()


Found = TypeVar("Found", bound=_Index)


COMPARED_AT_ONCE = 256
"""Requirements of a selector up to which it is compared with all pods at once."""
MOST_COMPARED = 16
"""Larger selectors whose comparison has finished and that have not been counted yet."""
_Verdicts = dict[str, tuple[Mapping[str, str], bool]]
"""By the UID of a pod its labels, and whether a selector selects them."""


class PodIndexes:
    """Recent terms, and the counts. `keys` are the labels that nodes have."""

    def __init__(self, labels_of: LabelsOf, keys: Set[str]) -> None:
        self._labels_of, self._keys = labels_of, keys
        self._indexes: OrderedDict[Hashable, _Index] = OrderedDict()
        self._room = MOST_INDEXES
        self._compared: OrderedDict[Question, _Verdicts] = OrderedDict()

    def comparison(self, question: Question, nodes: Iterable[NodeInfo]) -> Callable[[], Awaitable[None]] | None:
        """Return what compares a large selector with all pods in slices; None if it can be counted at once."""
        if len(question.selector.requirements) <= COMPARED_AT_ONCE:
            return None
        if question in self._indexes or question in self._compared:
            return None
        pods = [pod for node in nodes for pod in node.pods.values() if pod.namespace == question.namespace]
        return partial(self._compare, question, pods)

    async def _compare(self, question: Question, pods: Sequence[PodInfo]) -> None:
        await offload.apart(question.namespace, question.selector.prepare)
        turn, found = Turn(), _Verdicts()
        for pod in pods:
            found[pod.uid] = pod.labels, await selects(question.selector, pod.labels, turn)
        self._compared[question] = found
        if len(self._compared) > MOST_COMPARED:
            self._compared.popitem(last=False)

    def matching(self, question: Question, nodes: Iterable[NodeInfo]) -> NodeCounts:
        """Return the counts for a question, which stay up to date while it is asked now and then."""
        weight = 1 if len(question.selector.requirements) <= SIMPLE else LARGE
        verdicts = self._compared.pop(question, {})

        def matches(pod: PodInfo) -> bool:
            labels, selected = verdicts.get(pod.uid, (None, False))
            return question.concerns(pod) and selected if labels is pod.labels else question.matches(pod)

        found = self._get(question, lambda: _Matching(matches if verdicts else question.matches, weight), nodes).found
        verdicts.clear()
        return found

    def all_matching(self, terms: TermSet, nodes: Iterable[NodeInfo]) -> NodeCounts:
        """Return the counts of the pods that all of the terms match."""

        def matches(pod: PodInfo) -> bool:
            return terms.all_match(pod.namespace, pod.labels, self._labels_of)

        def make() -> _Matching:
            return _Matching(matches, _weight(terms), terms.by_namespace_labels)

        return self._get(("all", terms), make, nodes).found

    def weighed(self, terms: TermSet, nodes: Iterable[NodeInfo]) -> Mapping[str, NodeCounts]:
        """Return by topology key the weights of the terms, each as often as there are pods that it matches."""
        return self._get(terms, lambda: _Weighed(terms, self._labels_of, self._keys), nodes).found

    def _get(self, question: Hashable, make: Callable[[], Found], nodes: Iterable[NodeInfo]) -> Found:
        index: Found | None = self._indexes.get(question)  # type: ignore[assignment]
        if index is not None:
            self._indexes.move_to_end(question)
            return index
        index = make()
        for node in nodes:
            for pod in node.pods.values():
                index.move(pod, node, 1)
        self._indexes[question] = index
        self._room -= index.weight
        while self._room < 0:
            self._room += self._indexes.popitem(last=False)[1].weight
        return index

    def count(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        for index in self._indexes.values():
            index.move(pod, node, sign)

    def node_gone(self, name: str) -> None:
        for index in self._indexes.values():
            for counts in index.counts():
                counts.per_node.pop(name, None)
                counts.forget_domains()

    def forget_domains(self) -> None:
        for index in self._indexes.values():
            for counts in index.counts():
                counts.forget_domains()

    def forget(self) -> None:
        """Count anew what is asked next: nodes have other labels than before."""
        self._indexes.clear()
        self._room = MOST_INDEXES

    def namespaces_changed(self) -> None:
        """Count anew what is asked next and chooses namespaces by their labels."""
        for question in [question for question, index in self._indexes.items() if index.by_namespace_labels]:
            self._room += self._indexes.pop(question).weight


def _weight(terms: TermSet) -> int:
    return 1 if len(terms.terms) <= FEW else LARGE
