"""The nodes that a pod's nodeSelector and node affinity allow or prefer.

What is small is compared as it stands. Larger affinity is made ready once a pod (alternatives.py), and each node then costs
its labels, not the terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from control.scheduler.alternatives import Alternatives, Conjunction, mask
from kube import node_affinity
from kube.api import core_v1

SMALL = 64
"""Requirements and their values, of all terms together, that are compared as they stand."""
_FIELD = ":field:"
"""Prefix of the keys under which fields are stored among a node's labels; no label's key contains a colon."""
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}
Term = core_v1.NodeSelectorTerm


class NodeTerms:
    """Alternative terms."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = terms
        self._together = Alternatives([_conjunction(term) for term in terms])

    def matching(self, node: core_v1.Node) -> int:
        """Return the terms (a bit each) that match a node."""
        labels, keys = node.metadata.labels, self._together.keys
        seen = {key: labels[key] for key in keys & labels.keys()}
        seen[_FIELD + "metadata.name"] = node.metadata.name or ""
        return self._together.matching(seen)


class NodeSelection:
    """Requirements of one pod on its node."""

    def __init__(self, spec: core_v1.PodSpec) -> None:
        self._spec = spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        self._required = required.node_selector_terms if required is not None else None
        self._preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else []

    def prepare(self) -> None:
        """Work out what comparing many terms needs."""
        _ = self._alternatives, self._weighed

    @property
    def prefers(self) -> bool:
        """True if there are preferred terms."""
        return bool(self._preferred)

    def matches(self, node: core_v1.Node) -> bool:
        """True if a node satisfies nodeSelector and the required node affinity."""
        if self._alternatives is None:
            return node_affinity.required_matches(self._spec, node)
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in self._spec.node_selector.items()):
            return False
        return self._alternatives.matching(node) != 0

    def weight(self, node: core_v1.Node) -> int:
        """Return the sum of the weights of the preferred terms that a node satisfies."""
        if self._weighed is None:
            return node_affinity.preferred_weight(self._spec, node)
        terms, groups = self._weighed
        found = terms.matching(node)
        return sum(weight * (found & group).bit_count() for weight, group in groups.items()) if found else 0

    @cached_property
    def _alternatives(self) -> NodeTerms | None:
        """The required terms; None if they are few or there are none at all."""
        return NodeTerms(self._required) if self._required is not None and is_large(self._required) else None

    @cached_property
    def _weighed(self) -> tuple[NodeTerms, dict[int, int]] | None:
        """The preferred terms, and which of them have a weight; None if they are few."""
        terms = [(t.preference, t.weight) for t in self._preferred if t.preference is not None]
        if not is_large(term for term, _ in terms):
            return None
        groups: dict[int, list[int]] = {}
        for number, (_, weight) in enumerate(terms):
            groups.setdefault(weight, []).append(number)
        found = {weight: mask(numbers) for weight, numbers in groups.items()}
        return NodeTerms([term for term, _ in terms]), found


def is_large(terms: Iterable[Term]) -> bool:
    """True if comparing terms as they stand would cost too much."""
    size = 0
    for term in terms:
        size += 1 + sum(1 + len(r.values) for r in [*term.match_expressions, *term.match_fields])
        if size > SMALL:
            return True
    return False


def _conjunction(term: Term) -> Conjunction | None:
    if not term.match_expressions and not term.match_fields:
        return None
    found = [(r.key, _OPERATORS.get(r.operator, ""), r.values) for r in term.match_expressions]
    return found + [(_FIELD + r.key, _OPERATORS.get(r.operator, ""), r.values) for r in term.match_fields]
