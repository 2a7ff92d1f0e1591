"""InterPodAffinity: near to, or away from, other pods; the wishes of those that are there count as well.

Filter: a node's domain must hold a pod for each required affinity term, none for each anti-affinity term, and none whose
own required anti-affinity speaks of the new pod. Score: weights of preferred terms, of the new pod and of those there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import ConfigurationError
from control.scheduler.counts import Question
from control.scheduler.framework import MAX_SCORE, Constraint, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import AffinityTerm, PodInfo

NAME = "InterPodAffinity"
_AFFINITY = Rejection(NAME, ("node(s) didn't match pod affinity rules",), unresolvable=True)
_ANTI_AFFINITY = Rejection(NAME, ("node(s) didn't match pod anti-affinity rules",))
_EXISTING = Rejection(NAME, ("node(s) didn't satisfy existing pods anti-affinity rules",))


class InterPodAffinity:
    name = NAME
    weight = 2

    def __init__(
        self, namespaces: Callable[[], Mapping[str, Mapping[str, str]]], args: Mapping[str, Any] | None = None
    ) -> None:
        self._namespaces = namespaces
        given = args or {}
        self._hard_weight = int(given.get("hardPodAffinityWeight", 1))
        self._deaf = bool(given.get("ignorePreferredTermsOfExistingPods"))
        if not 0 <= self._hard_weight <= 100:
            raise ConfigurationError("hardPodAffinityWeight: not in valid range [0-100]")

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> Constraint | None:
        """Look up the domains that matter; None where no affinity is in play."""
        forbidden = [
            (term.key, counts.domains(term.key, cluster.nodes))
            for term, counts in cluster.anti_terms.items()
            if cluster.term_matches(term, pod)
        ]
        affinity, anti = pod.affinity, pod.anti_affinity
        if not forbidden and not cluster.scored_terms and not cluster.hard_terms and pod.pod.spec.affinity is None:
            return None
        repelled = [
            (term.key, cluster.count(self._question([term], cluster)).domains(term.key, cluster.nodes))
            for term in anti.required
        ]
        wanted: list[tuple[str, dict[str, int]]] = []
        anywhere = True
        if affinity.required:
            counts = cluster.count(self._question(affinity.required, cluster))
            wanted = [(term.key, counts.domains(term.key, cluster.nodes)) for term in affinity.required]
            first_of_its_kind = not any(domains for _, domains in wanted) and all(
                cluster.term_matches(term, pod) for term in affinity.required
            )
            anywhere = first_of_its_kind
        scores = self._scores(pod, cluster)
        if not (forbidden or repelled or wanted or scores):
            return None
        return _Check(forbidden, repelled, wanted, anywhere, scores)

    def _question(self, terms: Sequence[AffinityTerm], cluster: Cluster) -> Question:
        known = self._namespaces()
        return Question(tuple((cluster.namespaces_of(term, known), term.selector) for term in terms))

    def _scores(self, pod: PodInfo, cluster: Cluster) -> dict[str, dict[str, int]]:
        """Return the points of each domain: label key -> value -> points."""
        scores: dict[str, dict[str, int]] = {}
        weighted = [(term, weight) for term, weight in pod.affinity.preferred]
        weighted += [(term, -weight) for term, weight in pod.anti_affinity.preferred]
        for term, weight in weighted:
            found = cluster.count(self._question([term], cluster)).domains(term.key, cluster.nodes)
            _add_points(scores, term.key, found, weight)
        if self._deaf and not weighted:
            return scores
        for (term, weight), counts in cluster.scored_terms.items():
            if cluster.term_matches(term, pod):
                _add_points(scores, term.key, counts.domains(term.key, cluster.nodes), weight)
        for term, counts in cluster.hard_terms.items() if self._hard_weight else ():
            if cluster.term_matches(term, pod):
                _add_points(scores, term.key, counts.domains(term.key, cluster.nodes), self._hard_weight)
        return scores


def _add_points(scores: dict[str, dict[str, int]], key: str, domains: Mapping[str, int], weight: int) -> None:
    points = scores.setdefault(key, {})
    for value, number in domains.items():
        points[value] = points.get(value, 0) + weight * number


class _Check:
    def __init__(
        self,
        forbidden: list[tuple[str, dict[str, int]]],
        repelled: list[tuple[str, dict[str, int]]],
        wanted: list[tuple[str, dict[str, int]]],
        anywhere: bool,
        scores: dict[str, dict[str, int]],
    ) -> None:
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
        if not self._scores:
            return None
        raw = [0] * len(nodes)
        for key, points in self._scores.items():
            raw = [score + points.get(node.labels.get(key, ""), 0) for score, node in zip(raw, nodes, strict=True)]
        least, most = min(raw, default=0), max(raw, default=0)
        return [MAX_SCORE * (r - least) // (most - least) for r in raw] if most > least else None
