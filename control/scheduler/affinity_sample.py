"""A part of a pod's required affinity, for the question whether another pod's arrival may help it.

All terms must match, so a pod that some requirements of a few terms exclude does not help. A pod has at most tens of thousands
of terms and requirements; only the first are compared, and no more is kept of a pod that waits. Ordinary affinity is
compared as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from control.scheduler.term_sets import AffinityTerm, LabelsOf
from kube.api import core_v1, meta_v1
from kube.selectors import NOTHING, LabelSelector, from_label_selector

TERMS, REQUIREMENTS, VALUES = 4, 8, 16
"""Terms of a pod, requirements of each of both selectors, and values of a requirement or namespaces that are compared."""


class AffinitySample:
    """The first terms of a pod in a namespace."""

    def __init__(self, affinity: core_v1.PodAffinity, namespace: str) -> None:
        terms = affinity.required_during_scheduling_ignored_during_execution
        self._terms = [_part(term, namespace) for term in terms[:TERMS]]

    def may_match(self, namespace: str, labels: Mapping[str, str], labels_of: LabelsOf) -> bool:
        """Return False if a pod with these labels in a namespace is not what all of the terms require."""
        return bool(self._terms) and all(term.matches(namespace, labels, labels_of) for term in self._terms)


def _part(term: core_v1.PodAffinityTerm, namespace: str) -> AffinityTerm:
    by_label = _selector(term.namespace_selector) if term.namespace_selector is not None else None
    namespaces: frozenset[str] | None = frozenset(term.namespaces[:VALUES])
    if by_label is None and not namespaces:
        namespaces = frozenset({namespace})
    elif len(term.namespaces) > VALUES or (by_label is not None and by_label.empty):
        namespaces = None
    return AffinityTerm(namespaces, by_label, _selector(term.label_selector), term.topology_key)


def _selector(declared: meta_v1.LabelSelector | None) -> LabelSelector:
    if declared is None:
        return NOTHING
    expressions = [one for one in declared.match_expressions[:REQUIREMENTS] if len(one.values) <= VALUES]
    match_labels = dict(islice(declared.match_labels.items(), REQUIREMENTS))
    return from_label_selector(meta_v1.LabelSelector(match_labels=match_labels, match_expressions=expressions))
