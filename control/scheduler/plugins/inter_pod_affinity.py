"""InterPodAffinity: affinity and anti-affinity to other pods, including the terms of existing pods.

Filter: a node's domain must hold a pod for each required affinity term, none for each anti-affinity term, and none whose
own required anti-affinity speaks of the new pod. Score: weights of preferred terms, of the new pod and of those there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import ConfigurationError
from control.scheduler.framework import MAX_SCORE, PreFilterState, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.term_sets import FEW

NAME = "InterPodAffinity"
_AFFINITY = Rejection(NAME, ("node(s) didn't match pod affinity rules",), unresolvable=True)
_ANTI_AFFINITY = Rejection(NAME, ("node(s) didn't match pod anti-affinity rules",))
_EXISTING = Rejection(NAME, ("node(s) didn't satisfy existing pods anti-affinity rules",))

Places = list[tuple[str, dict[str, int]]]
"""Labels of nodes, and how many pods are where a label has a value."""

_NOWHERE: Places = [("", {})]
"""No node has all the labels: nor has any this one."""


class InterPodAffinity:
    name = NAME
    weight = 2

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        given = args or {}
        self._hard_weight = int(given.get("hardPodAffinityWeight", 1))
        self._deaf = bool(given.get("ignorePreferredTermsOfExistingPods"))
        if not 0 <= self._hard_weight <= 100:
            raise ConfigurationError("hardPodAffinityWeight: not in valid range [0-100]")

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None:
        """Look up the domains that matter; None if no affinity is in play."""
        existing = cluster.existing_affinity
        forbidden = [
            (key, counts.domains(key, cluster.nodes))
            for terms, counts in existing.required_anti.items()
            for key, _ in cluster.points(terms, pod)
        ]
        terms = pod.terms
        if not forbidden and not existing.preferred and not existing.required and pod.pod.spec.affinity is None:
            return None
        repelled: Places = []
        if terms.required_anti_affinity is not None:
            repelled = [
                (key, found.domains(key, cluster.nodes))
                for key, found in cluster.weigh(terms.required_anti_affinity, pod).items()
            ]
        wanted: Places = []
        anywhere = True
        if terms.required_affinity is not None:
            counts = cluster.count_all(terms.required_affinity, pod)
            wanted = [
                (key, counts.domains(key, cluster.nodes))
                for key in terms.required_affinity.keys & cluster.label_keys.keys()
            ]
            itself = terms.required_affinity.all_match(pod.namespace, pod.labels, cluster.namespace_labels)
            anywhere = itself and not any(domains for _, domains in wanted)
            if len(wanted) < len(terms.required_affinity.keys):
                wanted = _NOWHERE
        # Checks whether a pod fits are many and need no points.
        return _Check(
            _merged(forbidden), repelled, wanted, anywhere=anywhere, scores=lambda: self._scores(pod, cluster)
        )

    def _scores(self, pod: PodInfo, cluster: Cluster) -> dict[str, dict[str, int]]:
        """Return the points of each domain: label key -> value -> points."""
        scores: dict[str, dict[str, int]] = {}
        own = pod.terms.preferred_affinity
        if own is not None:
            for key, found in cluster.weigh(own, pod).items():
                _add_points(scores, key, found.domains(key, cluster.nodes), 1)
        if self._deaf and own is None:
            return scores
        existing = cluster.existing_affinity
        kinds = [(existing.preferred, 1)] + ([(existing.required, self._hard_weight)] if self._hard_weight else [])
        for counted, factor in kinds:
            for terms, counts in counted.items():
                for key, weight in cluster.points(terms, pod):
                    _add_points(scores, key, counts.domains(key, cluster.nodes), weight * factor)
        return scores


def _merged(places: Places) -> Places:
    """Join many domains by their label, so that a node is looked up once for each label that nodes have."""
    if len(places) <= FEW:
        return places
    joined: dict[str, dict[str, int]] = {}
    for key, domains in places:
        joined.setdefault(key, {}).update(domains)
    return list(joined.items())


def _add_points(scores: dict[str, dict[str, int]], key: str, domains: Mapping[str, int], weight: int) -> None:
    points = scores.setdefault(key, {})
    for value, number in domains.items():
        points[value] = points.get(value, 0) + weight * number


class _Check:
    def __init__(
        self,
        forbidden: Places,
        repelled: Places,
        wanted: Places,
        *,
        anywhere: bool,
        scores: Callable[[], dict[str, dict[str, int]]],
    ) -> None:
        """`scores` returns the points of each domain."""
        self._forbidden, self._repelled, self._wanted = forbidden, repelled, wanted
        self._anywhere, self._scores = anywhere, scores

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Check the node's domains, in upstream's order."""
        labels = node.labels
        for key, domains in self._wanted:
            value = labels.get(key)
            if value is None or not (self._anywhere or value in domains):
                return _AFFINITY
        for key, domains in self._repelled:
            if labels.get(key) in domains:
                return _ANTI_AFFINITY
        for key, domains in self._forbidden:
            if labels.get(key) in domains:
                return _EXISTING
        return None

    @property
    def only_scores(self) -> bool:
        return not (self._forbidden or self._repelled or self._wanted)

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        """Scale the points of the nodes' domains between the least and the most."""
        scores = self._scores()
        if not scores:
            return None
        raw = [0] * len(nodes)
        for key, points in scores.items():
            raw = [score + points.get(node.labels.get(key, ""), 0) for score, node in zip(raw, nodes, strict=True)]
        least, most = min(raw, default=0), max(raw, default=0)
        return [MAX_SCORE * (r - least) // (most - least) for r in raw] if most > least else None
