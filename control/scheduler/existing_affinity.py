"""Affinity terms of the pods that are on nodes, counted by node: a new pod must respect some and is scored by the others."""

from __future__ import annotations

import itertools

from control.scheduler.node_counts import NodeCounts
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.term_sets import TermSet
from control.scheduler.unread_terms import UnreadTerms


class ExistingAffinity:
    """Number of pods with the same terms, by node."""

    def __init__(self) -> None:
        self.required_anti: dict[TermSet, NodeCounts] = {}
        """Required anti-affinity, which a new pod must respect."""
        self.preferred: dict[TermSet, NodeCounts] = {}
        """Preferred affinity, with the weights it has for a new pod."""
        self.required: dict[TermSet, NodeCounts] = {}
        """Required affinity, which scores a new pod by the profile's hardPodAffinityWeight."""
        self.unread_terms = UnreadTerms(lambda pod, info: self.count(pod, info, 1))
        """Pods whose terms do not count yet; somebody has to run it."""

    def forget_domains(self) -> None:
        """Node labels changed: the sums by domain are recomputed when needed."""
        indexes = [self.required_anti.values(), self.preferred.values(), self.required.values()]
        for counts in itertools.chain.from_iterable(indexes):
            counts.forget_domains()

    def count(self, pod: PodInfo, info: NodeInfo, sign: int) -> None:
        """Count the terms of a pod that is added (1) or removed (-1), large ones later."""
        if pod.pod.spec.affinity is None or (sign < 0 and self.unread_terms.remove(pod)):
            return
        if pod.has_large_terms:
            self.unread_terms.add(pod, info)
            return
        terms = pod.terms
        for found, counted in (
            (terms.required_anti_affinity, self.required_anti),
            (terms.required_affinity, self.required),
            (terms.preferred_affinity, self.preferred),
        ):
            if found is not None:
                _count_terms(counted, found, info, sign)


def _count_terms(counted: dict[TermSet, NodeCounts], terms: TermSet, info: NodeInfo, sign: int) -> None:
    counts = counted.get(terms)
    if counts is None:
        counts = counted[terms] = NodeCounts()
    counts.add(info, sign)
    if not counts.per_node:
        del counted[terms]
