"""Affinity terms of a pod, read from its spec."""

from __future__ import annotations

import msgspec

from control.scheduler.term_sets import AffinityTerm, TermSet
from kube.api import core_v1
from kube.selectors import from_label_selector

Affinity = core_v1.PodAffinity | core_v1.PodAntiAffinity


class PodTerms(msgspec.Struct, frozen=True):
    """The sets of a pod's affinity terms; `preferred_affinity` has those of both kinds with their weights."""

    required_affinity: TermSet | None = None
    required_anti_affinity: TermSet | None = None
    preferred_affinity: TermSet | None = None


NO_TERMS = PodTerms()


def required(found: Affinity | None, namespace: str) -> list[tuple[AffinityTerm, int]]:
    """Return the required terms."""
    terms = found.required_during_scheduling_ignored_during_execution if found is not None else ()
    return [(_term(term, namespace), 1) for term in terms]


def preferred(found: Affinity | None, sign: int, namespace: str) -> list[tuple[AffinityTerm, int]]:
    """Return the preferred terms with their weights; `sign` is -1 for anti-affinity."""
    terms = found.preferred_during_scheduling_ignored_during_execution if found is not None else ()
    return [(_term(t.pod_affinity_term, namespace), sign * t.weight) for t in terms if t.pod_affinity_term is not None]


def _term(term: core_v1.PodAffinityTerm, namespace: str) -> AffinityTerm:
    namespaces: frozenset[str] | None = frozenset(term.namespaces)
    by_label = from_label_selector(term.namespace_selector) if term.namespace_selector is not None else None
    if by_label is None and not namespaces:
        namespaces = frozenset({namespace})
    elif by_label is not None and by_label.empty:
        namespaces, by_label = None, None
    return AffinityTerm(namespaces, by_label, from_label_selector(term.label_selector), term.topology_key)
