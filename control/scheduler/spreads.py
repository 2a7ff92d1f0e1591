"""A pod's topology spread constraints, read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from control.scheduler.pod_selection import PodSelection
from kube.api import core_v1
from kube.selectors import LabelSelector, Requirement, from_label_selector


@dataclass(frozen=True, slots=True)
class Spread:
    """One constraint, ready for use."""

    key: str
    max_skew: int
    selector: LabelSelector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False
    _selection: PodSelection | None = field(default=None, init=False, repr=False, compare=False)

    def pod_selection(self, namespace: str) -> PodSelection:
        """Return the selection of pods in a namespace."""
        known = self._selection
        if known is None or known.namespace != namespace:
            known = PodSelection(namespace, self.selector, count_terminating=False)
            object.__setattr__(self, "_selection", known)
        return known


class Spreads(msgspec.Struct, frozen=True):
    """The constraints of a pod: those that filter, those that score."""

    hard: Sequence[Spread] = ()
    soft: Sequence[Spread] = ()


def spreads_of(declared: Sequence[core_v1.TopologySpreadConstraint], labels: Mapping[str, str]) -> Spreads:
    """Read the constraints of a pod with these labels."""
    return Spreads(
        [_spread(c, labels) for c in declared if c.when_unsatisfiable == "DoNotSchedule"],
        [_spread(c, labels) for c in declared if c.when_unsatisfiable == "ScheduleAnyway"],
    )


def _spread(constraint: core_v1.TopologySpreadConstraint, labels: Mapping[str, str]) -> Spread:
    selector = from_label_selector(constraint.label_selector)
    same = [key for key in constraint.match_label_keys if key in labels]
    if same:
        more = tuple(Requirement(key, "in", frozenset({labels[key]})) for key in same)
        selector = LabelSelector(selector.requirements + more, selector.nothing)
    return Spread(
        constraint.topology_key,
        constraint.max_skew,
        selector,
        constraint.min_domains or 1,
        constraint.node_affinity_policy != "Ignore",
        constraint.node_taints_policy == "Honor",
    )
