"""Selects the nodes of a DaemonSet's pods. The template is read once for all nodes.

Upstream: NodeShouldRunDaemonPod, with the predicates of node affinity, node name and taints.
"""

from __future__ import annotations

import msgspec

from kube.api import core_v1
from kube.selectors import NOTHING, OPERATORS, LabelSelector, Requirement
from kube.taints import NO_EXECUTE, NO_SCHEDULE, Tolerations

_NODE = "node.kubernetes.io/"
_TOLERATED = (
    ("not-ready", NO_EXECUTE),
    ("unreachable", NO_EXECUTE),
    ("disk-pressure", NO_SCHEDULE),
    ("memory-pressure", NO_SCHEDULE),
    ("pid-pressure", NO_SCHEDULE),
    ("unschedulable", NO_SCHEDULE),
)


def tolerations_of(spec: core_v1.PodSpec) -> list[core_v1.Toleration]:
    """Return the tolerations of a template's pods, with those that all daemons have."""
    wanted = list(_TOLERATED) + ([("network-unavailable", NO_SCHEDULE)] if spec.host_network else [])
    given = {
        (t.key, t.effect)
        for t in spec.tolerations
        if t.operator == "Exists" and t.value is None and t.toleration_seconds is None
    }
    missing = [(_NODE + key, effect) for key, effect in wanted if (_NODE + key, effect) not in given]
    return [
        *spec.tolerations,
        *(core_v1.Toleration(key=key, operator="Exists", effect=effect) for key, effect in missing),
    ]


def pod_spec(spec: core_v1.PodSpec, node: str) -> core_v1.PodSpec:
    """Return a template's pod spec for one node: tolerations that daemons have, and affinity to the node by name."""
    tolerations = tolerations_of(spec)
    by_name = core_v1.NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])
    affinity = spec.affinity or core_v1.Affinity()
    of_nodes = affinity.node_affinity or core_v1.NodeAffinity()
    required = of_nodes.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required and required.node_selector_terms else [core_v1.NodeSelectorTerm()]
    named = [msgspec.structs.replace(term, match_fields=[by_name]) for term in terms]
    of_nodes = msgspec.structs.replace(
        of_nodes,
        required_during_scheduling_ignored_during_execution=core_v1.NodeSelector(node_selector_terms=named),
    )
    return msgspec.structs.replace(
        spec, tolerations=tolerations, affinity=msgspec.structs.replace(affinity, node_affinity=of_nodes)
    )


class Placement:
    """A template's pod spec, read for many nodes."""

    def __init__(self, spec: core_v1.PodSpec) -> None:
        self._node_name, self._labels = spec.node_name, spec.node_selector.items()
        self._tolerations = Tolerations(tolerations_of(spec))
        affinity = spec.affinity.node_affinity if spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        # Each pod names its node, so what a term demands of the name is not asked.
        self._terms = [_labels_of(term) for term in required.node_selector_terms] if required else []

    @property
    def steps(self) -> int:
        """Cost of one node: the alternatives of the affinity."""
        return 1 + len(self._terms)

    def belongs(self, node: core_v1.Node) -> tuple[bool, bool]:
        """Return whether a node should get a daemon pod, and whether one that runs there may stay."""
        labels = node.metadata.labels
        if self._node_name and self._node_name != node.metadata.name:
            return False, False
        if not self._labels <= labels.items() or (self._terms and not any(t.matches(labels) for t in self._terms)):
            return False, False
        stays = self._tolerates(node, NO_EXECUTE)
        return stays and self._tolerates(node, NO_SCHEDULE), stays

    def _tolerates(self, node: core_v1.Node, effect: str) -> bool:
        return all(taint.effect != effect or self._tolerations.cover(taint) for taint in node.spec.taints)


def _labels_of(term: core_v1.NodeSelectorTerm) -> LabelSelector:
    """Return what a term demands of a node's labels; what compares a label with anything but one number matches nothing."""
    if any(r.operator in ("Gt", "Lt") and len(r.values) != 1 for r in term.match_expressions):
        return NOTHING
    return LabelSelector(
        tuple(Requirement(r.key, OPERATORS[r.operator], frozenset(r.values)) for r in term.match_expressions)
    )
