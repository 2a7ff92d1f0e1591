"""Choosing a node: walk the nodes from where the last walk ended, filter, score those that fit, take the best.

Enough is enough: in a large cluster the walk ends when a share of the nodes is found to fit: half of a hundred, a tenth of
5 000, or what percentageOfNodesToScore says. Verdicts of node-local plugins are cached by pod signature and node
generation, so for the hundredth replica of a template only the nodes that changed are looked at anew.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Container, Mapping
from dataclasses import dataclass

from control.scheduler.cluster import Cluster
from control.scheduler.framework import (
    Constraint,
    Diagnosis,
    PreFilterRejected,
    Profile,
    Rejection,
    ScorePlugin,
    Unschedulable,
    normalize,
)
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo

LEAST_FEASIBLE, LEAST_SHARE = 100, 5
"""Fitting nodes, and percent of all nodes, that are always looked for (minFeasibleNodesToFind and its percentage)."""
MOST_SIGNATURES = 64
Scorer = tuple[ScorePlugin, int]
_NOT_NAMED = Rejection("NodeAffinity", ("node(s) didn't satisfy plugin(s) [NodeAffinity]",), unresolvable=True)


@dataclass(slots=True)
class Candidates:
    """The nodes that fit a pod, and what is needed to choose between them."""

    nodes: list[NodeInfo]
    verdicts: list[Verdict]
    constraints: list[tuple[Constraint, int]]
    relative: list[Scorer]
    diagnosis: Diagnosis

    def keep(self, names: Container[str]) -> None:
        """Leave out all nodes but these."""
        kept = [i for i, node in enumerate(self.nodes) if node.name in names]
        self.nodes, self.verdicts = [self.nodes[i] for i in kept], [self.verdicts[i] for i in kept]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the node-local plugins for one state of a node."""

    generation: int
    rejection: Rejection | None
    fixed: int = 0
    """Weighted sum of the scores that need no normalizing."""
    relative: tuple[int, ...] = ()
    """Raw scores that do."""


class Algorithm:
    """The scheduling of one profile over one cluster."""

    def __init__(self, profile: Profile, cluster: Cluster) -> None:
        self.profile, self._cluster = profile, cluster
        self._verdicts: OrderedDict[bytes, dict[str, Verdict]] = OrderedDict()
        self._start = 0

    def place(self, pod: PodInfo) -> str:
        """Return the name of the best node for a pod; raises Unschedulable where none fits."""
        return self.choose(self.feasible(pod))

    def feasible(self, pod: PodInfo) -> Candidates:
        """Return nodes that fit a pod, as many as are enough; raises Unschedulable where none does."""
        constraints: list[tuple[Constraint, int]] = []
        checks: list[Constraint] = []
        try:
            for use in self.profile.cluster:
                found = use.plugin.pre_filter(pod, self._cluster)
                if found is not None:
                    constraints.append((found, use.weight))
                    if use.filters and not getattr(found, "only_scores", False):
                        checks.append(found)
        except PreFilterRejected as refusal:
            nowhere = dict.fromkeys(self._cluster.nodes, refusal.rejection)
            raise Unschedulable(Diagnosis(len(nowhere), nowhere, str(refusal))) from refusal
        fixed, relative = self._scorers(pod)
        known, nominated = self._remembered(pod.signature), self._cluster.nominated
        nodes, start = self._candidates(pod)
        diagnosis = Diagnosis(len(self._cluster.nodes))
        feasible: list[NodeInfo] = []
        verdicts: list[Verdict] = []
        looked, enough = 0, self._enough(len(nodes))
        for node in itertools.chain(itertools.islice(nodes, start, None), itertools.islice(nodes, start)):
            looked += 1
            name = node.name
            verdict = known.get(name)
            if verdict is None or verdict.generation != node.generation:
                verdict = known[name] = self._judge(pod, node, fixed, relative)
            rejection = verdict.rejection
            if rejection is None:
                for constraint in checks:
                    rejection = constraint.filter(node)
                    if rejection is not None:
                        break
                else:
                    if nominated and name in nominated:
                        rejection = self._crowded_out(pod, node)
            if rejection is not None:
                diagnosis.rejections[name] = rejection
                continue
            feasible.append(node)
            verdicts.append(verdict)
            if len(feasible) == enough:
                break
        if nodes is self._cluster.order and nodes:
            self._start = (start + looked) % len(nodes)
        if not feasible:
            self._explain_unlisted(nodes, diagnosis)
            raise Unschedulable(diagnosis)
        return Candidates(feasible, verdicts, constraints, relative, diagnosis)

    def _enough(self, nodes: int) -> int:
        """Return how many fitting nodes are looked for among so many (upstream: numFeasibleNodesToFind)."""
        if nodes < LEAST_FEASIBLE:
            return nodes
        share = self.profile.percentage or max(LEAST_SHARE, 50 - nodes // 125)
        return max(LEAST_FEASIBLE, nodes * share // 100)

    def fits_with_all(self, pod: PodInfo, node: NodeInfo) -> bool:
        """True where every filter lets the pod onto a node as the cache has it now, without the cache."""
        return self._look(pod, node) is None and self._crowded_out(pod, node) is None

    def _look(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Ask every filter anew."""
        for plugin in self.profile.filters:
            rejection = plugin.filter(pod, node)
            if rejection is not None:
                return rejection
        for use in self.profile.cluster:
            try:
                constraint = use.plugin.pre_filter(pod, self._cluster) if use.filters else None
            except PreFilterRejected as refusal:
                return refusal.rejection
            rejection = constraint.filter(node) if constraint is not None else None
            if rejection is not None:
                return rejection
        return None

    def _crowded_out(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Filter again as if the pods nominated for the node, of this priority or higher, were there already."""
        others = [
            other
            for other in self._cluster.nominated.get(node.name, {}).values()
            if other.priority >= pod.priority and other.key != pod.key
        ]
        if not others:
            return None
        for other in others:
            self._cluster.put_back(other, node)
        try:
            return self._look(pod, node)
        finally:
            for other in others:
                self._cluster.lift(other, node)

    def _candidates(self, pod: PodInfo) -> tuple[list[NodeInfo], int]:
        named = pod.named_nodes
        if named is None:
            return self._cluster.order, self._start if self._start < len(self._cluster.order) else 0
        return [self._cluster.nodes[name] for name in sorted(named) if name in self._cluster.nodes], 0

    def _explain_unlisted(self, nodes: list[NodeInfo], diagnosis: Diagnosis) -> None:
        """Nodes that a pod's affinity rules out by name were not looked at; they count as refused by PreFilter."""
        if nodes is self._cluster.order:
            return
        for name in self._cluster.nodes:
            diagnosis.rejections.setdefault(name, _NOT_NAMED)

    def _scorers(self, pod: PodInfo) -> tuple[list[Scorer], list[Scorer]]:
        applicable = [scorer for scorer in self.profile.scores if scorer[0].applies(pod)]
        return [s for s in applicable if not s[0].normalized], [s for s in applicable if s[0].normalized]

    def _remembered(self, signature: bytes) -> dict[str, Verdict]:
        known = self._verdicts.get(signature)
        if known is None:
            known = self._verdicts[signature] = {}
            if len(self._verdicts) > MOST_SIGNATURES:
                self._verdicts.popitem(last=False)
        else:
            self._verdicts.move_to_end(signature)
        return known

    def _judge(self, pod: PodInfo, node: NodeInfo, fixed: list[Scorer], relative: list[Scorer]) -> Verdict:
        for plugin in self.profile.filters:
            rejection = plugin.filter(pod, node)
            if rejection is not None:
                return Verdict(node.generation, rejection)
        return Verdict(
            node.generation,
            None,
            sum(weight * plugin.score(pod, node) for plugin, weight in fixed),
            tuple(plugin.score(pod, node) for plugin, _ in relative),
        )

    def choose(self, candidates: Candidates, more: Mapping[str, int] | None = None) -> str:
        """Return the name of the node with the most points; `more` are points from elsewhere."""
        feasible, verdicts = candidates.nodes, candidates.verdicts
        if len(feasible) == 1:
            return feasible[0].name
        totals = [verdict.fixed for verdict in verdicts]
        for position, (plugin, weight) in enumerate(candidates.relative):
            raw = [verdict.relative[position] for verdict in verdicts]
            if any(raw):
                scores = normalize(raw, plugin.normalized)
                totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
        for constraint, weight in candidates.constraints:
            found = constraint.score(feasible) if weight else None
            if found is not None:
                totals = [total + weight * score for total, score in zip(totals, found, strict=True)]
        if more:
            for i, node in enumerate(feasible):
                totals[i] += more.get(node.name, 0)
        return feasible[totals.index(max(totals))].name
