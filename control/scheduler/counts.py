"""Incremental counts of pods by node and by topology domain.

Inter-pod affinity and topology spread ask again and again how many pods with certain labels are in each zone or on each
host. An index for such a question is made at the first asking, kept up to date by every pod that comes or goes, and
dropped when it has not been asked for long; so no pod is placed by looking at all others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.selectors import LabelSelector

MOST_INDEXES = 512


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
        """Node labels changed: the sums are made anew when asked for."""
        self._domains.clear()


def _add(counts: dict[str, int], key: str, number: int) -> None:
    total = counts.get(key, 0) + number
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


@dataclass(frozen=True, slots=True)
class Question:
    """Pods that are in one of the namespaces (None: any) and match the selector, for every pair of them."""

    terms: tuple[tuple[frozenset[str] | None, LabelSelector], ...]
    count_terminating: bool = True

    def matches(self, pod: PodInfo) -> bool:
        if not self.count_terminating and pod.pod.metadata.deletion_timestamp is not None:
            return False
        return all(
            (namespaces is None or pod.namespace in namespaces) and selector.matches(pod.labels)
            for namespaces, selector in self.terms
        )


class PodIndexes:
    """The questions that were asked lately, and their counts."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[Question, NodeCounts] = OrderedDict()

    def get(self, question: Question, nodes: Iterable[NodeInfo]) -> NodeCounts:
        """Return the counts for a question, which stay up to date while it is asked now and then."""
        counts = self._indexes.get(question)
        if counts is None:
            counts = self._indexes[question] = NodeCounts()
            for node in nodes:
                number = sum(1 for pod in node.pods.values() if question.matches(pod))
                if number:
                    counts.add(node, number)
            if len(self._indexes) > MOST_INDEXES:
                self._indexes.popitem(last=False)
        else:
            self._indexes.move_to_end(question)
        return counts

    def count(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        for question, counts in self._indexes.items():
            if question.matches(pod):
                counts.add(node, sign)

    def node_gone(self, name: str) -> None:
        for counts in self._indexes.values():
            counts.per_node.pop(name, None)
            counts.forget_domains()

    def forget_domains(self) -> None:
        for counts in self._indexes.values():
            counts.forget_domains()
