"""Node selectors: matches a node against a pod's nodeSelector and node affinity, and scores preferences.

Terms are alternatives, the requirements within one must all hold; a term without requirements matches nothing.
Upstream: component-helpers/scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube.api import core_v1


def required_matches(spec: core_v1.PodSpec, node: core_v1.Node) -> bool:
    """True if the node satisfies nodeSelector and the required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or any(term_matches(term, node) for term in required.node_selector_terms)


def preferred_weight(spec: core_v1.PodSpec, node: core_v1.Node) -> int:
    """Return the sum of the weights of the preferred terms that the node satisfies."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return 0
    return sum(
        term.weight
        for term in affinity.preferred_during_scheduling_ignored_during_execution
        if term.preference is not None and term_matches(term.preference, node)
    )


def term_matches(term: core_v1.NodeSelectorTerm, node: core_v1.Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name or ""}
    return all(_matches(r, node.metadata.labels) for r in term.match_expressions) and all(
        _matches(r, fields) for r in term.match_fields
    )


def named_nodes(spec: core_v1.PodSpec) -> set[str] | None:
    """Return the only nodes that the required affinity allows by name; None if it does not name them."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return selected_names(affinity.required_during_scheduling_ignored_during_execution if affinity else None)


def selected_names(selector: core_v1.NodeSelector | None) -> set[str] | None:
    """Return the only nodes that a selector allows by name; None if it does not name them."""
    if selector is None or not selector.node_selector_terms:
        return None
    names: set[str] = set()
    for term in selector.node_selector_terms:
        named = [set(r.values) for r in term.match_fields if r.key == "metadata.name" and r.operator == "In"]
        if not named:
            return None
        names |= set.intersection(*named)
    return names


def _matches(requirement: core_v1.NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value, operator = labels.get(requirement.key), requirement.operator
    if operator == "In":
        return value in requirement.values
    if operator == "NotIn":
        return value is None or value not in requirement.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    try:
        found, bound = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return found > bound if operator == "Gt" else found < bound if operator == "Lt" else False
