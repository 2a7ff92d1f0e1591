"""Selection of a node: filters the nodes, starting after the last one of the previous pod, and scores the feasible ones.

In a large cluster filtering ends when a share of the nodes is feasible: half of a hundred, a tenth of 5 000, or
percentageOfNodesToScore. Results of node-local plugins are cached by pod signature and node
generation, so for the hundredth replica of a template only the nodes that changed are filtered again.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping
from time import perf_counter

from control.scheduler import metrics
from control.scheduler.candidates import Candidates, Choice, NodeResult, Scorer
from control.scheduler.cluster import Cluster
from control.scheduler.dry_run import DryRun
from control.scheduler.framework import (
    Diagnosis,
    PreFilterRejected,
    PreFilterState,
    Profile,
    Rejection,
    Unschedulable,
    normalize,
)
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.ranking import Ranking
from kube.bounded_cache import on_forget

LEAST_FEASIBLE, LEAST_SHARE = 100, 5
"""Minimum number of feasible nodes, and percentage of all nodes, to find (minFeasibleNodesToFind and its percentage)."""
MOST_SIGNATURES = 64
_NOT_NAMED = Rejection("NodeAffinity", ("node(s) didn't satisfy plugin(s) [NodeAffinity]",), unresolvable=True)


class Algorithm:
    """The scheduling of one profile over one cluster."""

    def __init__(self, profile: Profile, cluster: Cluster) -> None:
        self.profile, self._cluster = profile, cluster
        self._results: OrderedDict[bytes, dict[str, NodeResult]] = OrderedDict()
        self._start = 0
        self._ranking: tuple[bytes, Ranking] | None = None
        """The ranking that the last pod got its node from, by the pod's signature."""
        self.choice: Choice | None = None
        """The last pod's nodes; None if they were not scored."""
        times, name = metrics.EXTENSION_POINT_SECONDS, profile.name
        self._pre_filtered = times.bound("PreFilter", metrics.SUCCESS, name)
        self._filtered, self._scored = (times.bound(point, metrics.SUCCESS, name) for point in ("Filter", "Score"))
        self._rejected = times.bound("PreFilter", metrics.UNSCHEDULABLE, name)
        self._infeasible = times.bound("Filter", metrics.UNSCHEDULABLE, name)
        on_forget(self.forget)

    def forget(self) -> None:
        """Clear the cache of results."""
        self._results.clear()
        self._ranking = None

    def place(self, pod: PodInfo) -> str:
        """Return the name of the best node for a pod; raises Unschedulable if none is feasible."""
        self.choice = None
        states, checks = self._pre_filter(pod)
        single = not states and pod.named_nodes is None and not self._cluster.nominations.by_node
        if single and self._ranking is not None and self._ranking[0] == pod.signature:
            node = self._ranking[1].next(pod)
            if node is not None:
                return node.name
        candidates = self._feasible(pod, states, checks)
        self._ranking = (pod.signature, self._rank(pod, candidates)) if single and candidates.comparable else None
        return self.choose(candidates)

    def feasible(self, pod: PodInfo) -> Candidates:
        """Return enough feasible nodes of a pod; raises Unschedulable if there is none."""
        return self._feasible(pod, *self._pre_filter(pod))

    def _pre_filter(self, pod: PodInfo) -> tuple[list[tuple[PreFilterState, int]], list[PreFilterState]]:
        """Return the cluster plugins' states with their weights, and those that filter; raises Unschedulable."""
        states: list[tuple[PreFilterState, int]] = []
        checks: list[PreFilterState] = []
        began = perf_counter()
        try:
            for use in self.profile.cluster:
                found = use.plugin.pre_filter(pod, self._cluster)
                if found is not None:
                    states.append((found, use.weight))
                    if use.filters and not getattr(found, "only_scores", False):
                        checks.append(found)
        except PreFilterRejected as refusal:
            self._rejected(perf_counter() - began)
            nowhere = dict.fromkeys(self._cluster.nodes, refusal.rejection)
            raise Unschedulable(Diagnosis(len(nowhere), nowhere, str(refusal))) from refusal
        self._pre_filtered(perf_counter() - began)
        return states, checks

    def _feasible(
        self, pod: PodInfo, states: list[tuple[PreFilterState, int]], checks: list[PreFilterState]
    ) -> Candidates:
        began = perf_counter()
        fixed, relative = self._scorers(pod)
        known, nominated = self._remembered(pod.signature), self._cluster.nominations.by_node
        nodes, start = self._candidates(pod)
        diagnosis = Diagnosis(len(self._cluster.nodes))
        feasible: list[NodeInfo] = []
        results: list[NodeResult] = []
        filtered, enough = 0, self._enough(len(nodes))
        for node in itertools.chain(itertools.islice(nodes, start, None), itertools.islice(nodes, start)):
            filtered += 1
            name = node.name
            result = known.get(name)
            if result is None or result.generation != node.generation:
                result = known[name] = self._judge(pod, node, fixed, relative)
            rejection = result.rejection
            if rejection is None:
                for state in checks:
                    rejection = state.filter(node)
                    if rejection is not None:
                        break
                else:
                    if nominated and name in nominated:
                        rejection = self._rejected_with_nominated_pods(pod, node)
            if rejection is not None:
                diagnosis.rejections[name] = rejection
                continue
            feasible.append(node)
            results.append(result)
            if len(feasible) == enough:
                break
        if nodes is self._cluster.order and nodes:
            self._start = (start + filtered) % len(nodes)
        (self._filtered if feasible else self._infeasible)(perf_counter() - began)
        if not feasible:
            self._explain_unlisted(nodes, diagnosis)
            raise Unschedulable(diagnosis)
        return Candidates(feasible, results, states, relative, diagnosis, filtered < len(nodes))

    def _rank(self, pod: PodInfo, candidates: Candidates) -> Ranking:
        """Return the ranking of a pod's feasible nodes, without its own node's change, for pods of the same signature."""
        fixed, relative = self._scorers(pod)
        known = self._remembered(pod.signature)

        def judge(next_pod: PodInfo, node: NodeInfo) -> NodeResult:
            result = known[node.name] = self._judge(next_pod, node, fixed, relative)
            return result

        return Ranking(self._cluster, candidates.nodes, candidates.results, judge)

    def _enough(self, nodes: int) -> int:
        """Return the number of feasible nodes to find among `nodes` (upstream: numFeasibleNodesToFind)."""
        if nodes < LEAST_FEASIBLE:
            return nodes
        share = self.profile.percentage or max(LEAST_SHARE, 50 - nodes // 125)
        return max(LEAST_FEASIBLE, nodes * share // 100)

    def fits_with_all(self, pod: PodInfo, node: NodeInfo) -> bool:
        """True if every filter accepts the node in its present state; cached results are not used."""
        return self._filter(pod, node) is None and self._rejected_with_nominated_pods(pod, node) is None

    def dry_run(self, pod: PodInfo) -> DryRun:
        """Return a pod's filters for a node from which pods are removed; raises Unfinished."""
        return DryRun(pod, self.profile, self._cluster)

    def _filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Evaluate every filter without the cache."""
        for plugin in self.profile.filters:
            rejection = plugin.filter(pod, node)
            if rejection is not None:
                return rejection
        for use in self.profile.cluster:
            try:
                state = use.plugin.pre_filter(pod, self._cluster) if use.filters else None
            except PreFilterRejected as refusal:
                return refusal.rejection
            rejection = state.filter(node) if state is not None else None
            if rejection is not None:
                return rejection
        return None

    def _rejected_with_nominated_pods(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Filter again as if the pods nominated for the node, of this priority or higher, were there already."""
        others = self._cluster.nominations.above(pod, node.name)
        if not others:
            return None
        for other in others:
            self._cluster.add_for_dry_run(other, node)
        try:
            return self._filter(pod, node)
        finally:
            for other in others:
                self._cluster.remove_for_dry_run(other, node)

    def _candidates(self, pod: PodInfo) -> tuple[list[NodeInfo], int]:
        named = pod.named_nodes
        if named is None:
            return self._cluster.order, self._start if self._start < len(self._cluster.order) else 0
        return [self._cluster.nodes[name] for name in sorted(named) if name in self._cluster.nodes], 0

    def _explain_unlisted(self, nodes: list[NodeInfo], diagnosis: Diagnosis) -> None:
        """Add rejections for the nodes that a pod's affinity excludes by name: PreFilter rejects them."""
        if nodes is self._cluster.order:
            return
        for name in self._cluster.nodes:
            diagnosis.rejections.setdefault(name, _NOT_NAMED)

    def _scorers(self, pod: PodInfo) -> tuple[list[Scorer], list[Scorer]]:
        applicable = [scorer for scorer in self.profile.scores if scorer[0].applies(pod)]
        return [s for s in applicable if not s[0].normalized], [s for s in applicable if s[0].normalized]

    def _remembered(self, signature: bytes) -> dict[str, NodeResult]:
        known = self._results.get(signature)
        if known is None:
            known = self._results[signature] = {}
            if len(self._results) > MOST_SIGNATURES:
                self._results.popitem(last=False)
        else:
            self._results.move_to_end(signature)
        return known

    def _judge(self, pod: PodInfo, node: NodeInfo, fixed: list[Scorer], relative: list[Scorer]) -> NodeResult:
        for plugin in self.profile.filters:
            rejection = plugin.filter(pod, node)
            if rejection is not None:
                return NodeResult(node.generation, rejection)
        return NodeResult(
            node.generation,
            None,
            sum(weight * plugin.score(pod, node) for plugin, weight in fixed),
            tuple(plugin.score(pod, node) for plugin, _ in relative),
        )

    def choose(self, candidates: Candidates, more: Mapping[str, int] | None = None) -> str:
        """Return the name of the node with the highest score; `more` are scores of extenders.

        Ties: of nodes with the same score the first candidate wins. Candidates begin after the last node that was examined for
        the previous pod, which spreads pods (upstream chooses at random).
        """
        feasible, results = candidates.nodes, candidates.results
        if len(feasible) == 1:
            self.choice = Choice(candidates, [0])
            return feasible[0].name
        began = perf_counter()
        totals = [result.fixed for result in results]
        for position, (plugin, weight) in enumerate(candidates.relative):
            raw = [result.relative[position] for result in results]
            if any(raw):
                scores = normalize(raw, plugin.normalized)
                totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
        for state, weight in candidates.states:
            found = state.score(feasible) if weight else None
            if found is not None:
                totals = [total + weight * score for total, score in zip(totals, found, strict=True)]
        if more:
            for i, node in enumerate(feasible):
                totals[i] += more.get(node.name, 0)
        self._scored(perf_counter() - began)
        self.choice = Choice(candidates, totals)
        return feasible[totals.index(max(totals))].name
