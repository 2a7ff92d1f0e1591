"""PodTopologySpread: pods of a kind evenly over zones, hosts, or whatever label the constraint names.

DoNotSchedule constraints filter: putting the pod there must not lift its domain more than maxSkew above the emptiest one.
ScheduleAnyway constraints score. Pods without constraints that belong to a Service or a workload are spread over hosts
and zones softly (upstream's system defaults).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import ConfigurationError
from control.scheduler.framework import MAX_SCORE, PreFilterState, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.spread_dry_run import MISSING, NAME, SKEWED, DomainCounts, SpreadDryRun
from control.scheduler.podinfo import PodInfo
from control.scheduler.spreads import Spread
from kube.api import core_v1
from kube.bounded_cache import on_forget
from kube.selectors import LabelSelector
from kube.taints import NO_EXECUTE, NO_SCHEDULE

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SYSTEM_DEFAULTS = ((HOSTNAME, 3), (ZONE, 5))
"""(topology key, max skew) of the soft constraints that pods have by default."""
MOST_REMEMBERED, FEW_LABELS = 256, 4
"""Cached sets of eligible nodes, and labels up to which they are their own key in the cache."""


class _Eligible(msgspec.Struct):
    """The nodes that count for constraints (None: all that have the labels), and their domains."""

    version: int
    nodes: set[str] | None
    domains: dict[str, set[str]]
    """By label, one of which all eligible nodes have."""


class _Labels(msgspec.Struct, frozen=True):
    """Labels that eligible nodes have; `key` stands for them in the cache and is small."""

    names: frozenset[str]
    key: object

    @classmethod
    def of(cls, constraints: Sequence[Spread]) -> _Labels:
        names = frozenset(constraint.key for constraint in constraints)
        return cls(
            names, names if len(names) <= FEW_LABELS else hashlib.sha256("\0".join(sorted(names)).encode()).digest()
        )


class PodTopologySpread:
    name = NAME
    weight = 2

    def __init__(
        self, default_selector: Callable[[core_v1.Pod], LabelSelector | None], args: Mapping[str, Any] | None = None
    ) -> None:
        self._default_selector = default_selector
        self._defaults = _defaults(args or {})
        self._eligible: dict[tuple[object, ...], _Eligible] = {}
        on_forget(self.forget)

    def forget(self) -> None:
        """Clear the cache."""
        self._eligible.clear()

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None:
        """Count the matching pods by domain."""
        hard, soft = self._constraints(pod)
        if not hard and not soft:
            return None
        firm, keys = _Labels.of(hard), _Labels.of(soft)
        filters = [self._filter(constraint, firm, pod, cluster) for constraint in hard]
        together = bool(pod.pod.spec.topology_spread_constraints) or self._defaults is not None
        counts = [self._counts(c, keys if together else _Labels.of([c]), pod, cluster)[0] for c in soft]
        return _Check(filters, soft, counts, require_all=together)

    def dry_run(self, pod: PodInfo, cluster: Cluster) -> SpreadDryRun | None:
        """Count the matching pods by domain once, for a filter that follows the pods of a dry run."""
        hard, _ = self._constraints(pod)
        if not hard:
            return None
        labels = _Labels.of(hard)
        found = []
        for constraint in hard:
            counts, domains = self._counts(constraint, labels, pod, cluster)
            eligible = self._eligible_nodes(constraint, labels, pod, cluster).nodes
            found.append(DomainCounts(constraint, pod, counts, domains, eligible))
        return SpreadDryRun(found)

    def _constraints(self, pod: PodInfo) -> tuple[Sequence[Spread], Sequence[Spread]]:
        """Return the constraints that filter, and those that score."""
        hard, soft = pod.spreads.hard, pod.spreads.soft
        if not pod.pod.spec.topology_spread_constraints:
            selector = self._default_selector(pod.pod)
            if selector is not None and self._defaults is None:
                soft = [Spread(key, skew, selector) for key, skew in SYSTEM_DEFAULTS]
            elif selector is not None:
                hard = [Spread(key, skew, selector) for key, skew, firm in self._defaults or () if firm]
                soft = [Spread(key, skew, selector) for key, skew, firm in self._defaults or () if not firm]
        return hard, soft

    def _filter(self, constraint: Spread, keys: _Labels, pod: PodInfo, cluster: Cluster) -> _Filter:
        counts, domains = self._counts(constraint, keys, pod, cluster)
        least = 0
        if len(domains) >= constraint.min_domains and domains:
            least = min(counts.get(value, 0) for value in domains) if len(counts) >= len(domains) else 0
        itself = 1 if constraint.selector.matches(pod.labels) else 0
        return _Filter(constraint.key, counts, constraint.max_skew + least - itself)

    def _counts(
        self, constraint: Spread, keys: _Labels, pod: PodInfo, cluster: Cluster
    ) -> tuple[dict[str, int], set[str]]:
        """Return (matching pods by domain, all domains), over the nodes that are eligible and have all labels of `keys`."""
        eligible = self._eligible_nodes(constraint, keys, pod, cluster)
        if not eligible.domains:
            return {}, set()
        domains = eligible.domains[constraint.key]
        found = cluster.count(constraint.pod_selection(pod.namespace), pod)
        if eligible.nodes is None:
            return found.domains(constraint.key, cluster.nodes), domains
        counts: dict[str, int] = {}
        for name, number in found.per_node.items():
            if name in eligible.nodes:
                value = cluster.nodes[name].labels[constraint.key]
                counts[value] = counts.get(value, 0) + number
        return counts, domains

    def _eligible_nodes(self, constraint: Spread, keys: _Labels, pod: PodInfo, cluster: Cluster) -> _Eligible:
        selection = pod.selection_digest if constraint.honor_affinity else b""
        tolerations = pod.tolerations_digest if constraint.honor_taints else b""
        memory_key = (keys.key, selection, tolerations, constraint.honor_taints)
        known = self._eligible.get(memory_key)
        if known is not None and known.version == cluster.topology_version:
            return known
        nodes: set[str] = set()
        domains: dict[str, set[str]] = {}
        for node in cluster.order:
            if not keys.names <= node.labels.keys():
                continue
            if selection and not pod.selection.matches(node.node):
                continue
            if constraint.honor_taints and pod.tolerations.first_untolerated(node.taints, (NO_SCHEDULE, NO_EXECUTE)):
                continue
            nodes.add(node.name)
            for key in keys.names:
                domains.setdefault(key, set()).add(node.labels[key])
        everything = len(nodes) == len(cluster.order)
        if len(self._eligible) >= MOST_REMEMBERED:
            self._eligible.clear()
        found = _Eligible(cluster.topology_version, None if everything else nodes, domains)
        self._eligible[memory_key] = found
        return found


def _defaults(args: Mapping[str, Any]) -> tuple[tuple[str, int, bool], ...] | None:
    """Read PodTopologySpreadArgs as (key, max skew, hard); None: the system's. Raises ConfigurationError."""
    kind, given = args.get("defaultingType", "System"), args.get("defaultConstraints") or []
    if kind == "System":
        if given:
            raise ConfigurationError('defaultConstraints: when .defaultingType is "System", constraints must be empty')
        return None
    if kind != "List":
        raise ConfigurationError(f'defaultingType: unsupported value "{kind}"')
    found = []
    for constraint in given:
        if constraint.get("labelSelector") is not None:
            raise ConfigurationError(
                "defaultConstraints: constraint must not define a selector, as they deduced for each pod"
            )
        action = constraint.get("whenUnsatisfiable")
        if action not in ("DoNotSchedule", "ScheduleAnyway") or not constraint.get("topologyKey"):
            raise ConfigurationError("defaultConstraints: topologyKey and whenUnsatisfiable are required")
        found.append((str(constraint["topologyKey"]), int(constraint.get("maxSkew", 1)), action == "DoNotSchedule"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Filter:
    key: str
    counts: dict[str, int]
    most: int
    """A domain may hold so many matching pods before this one."""


class _Check:
    def __init__(
        self, filters: list[_Filter], soft: Sequence[Spread], counts: list[dict[str, int]], *, require_all: bool
    ) -> None:
        self._filters, self._soft, self._counts, self._require_all = filters, soft, counts, require_all

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Check each hard constraint for the node's domain."""
        for check in self._filters:
            value = node.labels.get(check.key)
            if value is None:
                return MISSING
            if check.counts.get(value, 0) > check.most:
                return SKEWED
        return None

    @property
    def only_scores(self) -> bool:
        return not self._filters

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        """Give the emptiest domains 100; a domain's count weighs more where there are many domains."""
        if not self._soft or not any(self._counts):
            return None
        labels = [node.labels for node in nodes]
        keys = {constraint.key for constraint in self._soft}
        counted = [found for found in labels if keys <= found.keys()] if self._require_all else labels
        if not counted:
            return None
        points = [0.0] * len(nodes)
        for constraint, counts in zip(self._soft, self._counts, strict=True):
            key, least = constraint.key, constraint.max_skew - 1
            size = len(counted) if key == HOSTNAME else len({found.get(key) for found in counted})
            weight = math.log(size + 2)
            domains = {value: count * weight + least for value, count in counts.items()}
            for index, found in enumerate(labels):
                value = found.get(key)
                if value is not None:
                    points[index] += domains.get(value, least)
        raw = [int(score + 0.5) for score in points]
        if len(counted) < len(labels):
            kept = {id(found) for found in counted}
            raw = [score if id(found) in kept else -1 for score, found in zip(raw, labels, strict=True)]
        present = [score for score in raw if score >= 0]
        most, least_ = max(present, default=0), min(present, default=0)
        if not most:
            return [MAX_SCORE if score >= 0 else 0 for score in raw]
        return [MAX_SCORE * (most + least_ - score) // most if score >= 0 else 0 for score in raw]
