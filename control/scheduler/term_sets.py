"""Sets of affinity terms of a pod, matched against another pod as a whole.

Pods of one template share a set, and counts are kept for each set. So the cost of adding, removing or scheduling a pod does
not grow with the number of terms of other pods.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property

import msgspec

from control.scheduler.alternatives import Alternatives, Conjunction, Requirement, mask
from control.scheduler.pod_selection import ENTRY_BYTES, selector_size
from kube.selectors import LabelSelector

FEW = 4
"""So many terms are compared one by one, which is faster."""
_NAMESPACE, _OF_NAMESPACE = ":namespace", ":label of the namespace:"
"""Under which keys a pod's namespace and that one's labels stand among the pod's labels; a colon is in no label's key."""
LabelsOf = Callable[[str], Mapping[str, str]]
"""Returns the labels of a namespace."""


class AffinityTerm(msgspec.Struct, frozen=True):
    """A pod affinity term: pods of these namespaces (None: all) with these labels, in one domain of `key`."""

    namespaces: frozenset[str] | None
    namespace_selector: LabelSelector | None
    selector: LabelSelector
    key: str

    def matches(self, namespace: str, labels: Mapping[str, str], labels_of: LabelsOf) -> bool:
        """True if a pod with these labels in a namespace is one of those that the term speaks of."""
        if self.namespaces is not None and namespace not in self.namespaces:
            by_label = self.namespace_selector
            if by_label is None or not by_label.matches(labels_of(namespace)):
                return False
        return self.selector.matches(labels)


class TermSet:
    """Terms with their weights. Sets with the same terms are one object, as long as it is used."""

    def __init__(self, terms: tuple[tuple[AffinityTerm, int], ...]) -> None:
        self.terms = terms
        self.by_namespace_labels = any(term.namespace_selector is not None for term, _ in terms)
        self.keys = frozenset(term.key for term, _ in terms)

    @cached_property
    def _alternatives(self) -> Alternatives:
        """The terms as they take explicit namespaces, then as they take namespaces by their labels."""
        return Alternatives(
            [_explicit(term) for term, _ in self.terms] + [_by_label(term) for term, _ in self.terms],
        )

    @cached_property
    def _weights(self) -> dict[str, dict[int, int]]:
        """The terms (a bit each) by topology key and weight."""
        found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, (term, weight) in enumerate(self.terms):
            found[term.key][weight].append(number)
        return {key: {weight: mask(numbers) for weight, numbers in groups.items()} for key, groups in found.items()}

    def prepare(self) -> None:
        """Work out what comparing many terms, or large ones, needs."""
        if len(self.terms) > FEW:
            _ = self.size, self._alternatives, self._weights
        elif self.size > FEW * ENTRY_BYTES:
            for term, _ in self.terms:
                for selector in (term.selector, term.namespace_selector):
                    if selector is not None:
                        selector.prepare()

    @cached_property
    def size(self) -> int:
        """About how many bytes the terms take."""
        return sum(
            ENTRY_BYTES * (1 + len(term.namespaces or ()))
            + len(term.key)
            + sum(selector_size(each) for each in (term.selector, term.namespace_selector) if each is not None)
            for term, _ in self.terms
        )

    def points(
        self, namespace: str, labels: Mapping[str, str], labels_of: LabelsOf, known: Set[str]
    ) -> Sequence[tuple[str, int]]:
        """Return the weights of the terms that match a pod, summed up by topology key; of `known` keys only."""
        if len(self.terms) == 1:
            term, weight = self.terms[0]
            return ((term.key, weight),) if term.matches(namespace, labels, labels_of) else ()
        if len(self.terms) <= FEW:
            sums: dict[str, int] = {}
            for term, weight in self.terms:
                if term.matches(namespace, labels, labels_of):
                    sums[term.key] = sums.get(term.key, 0) + weight
            return tuple(sums.items())
        found = self._matching(namespace, labels, labels_of)
        return self._sums(found, known) if found else ()

    def _sums(self, found: int, known: Set[str]) -> list[tuple[str, int]]:
        result = []
        for key in self.keys & known:
            hits = [(weight, (found & group).bit_count()) for weight, group in self._weights[key].items()]
            if any(number for _, number in hits):
                result.append((key, sum(weight * number for weight, number in hits)))
        return result

    def all_match(self, namespace: str, labels: Mapping[str, str], labels_of: LabelsOf) -> bool:
        """True if every term matches a pod."""
        if len(self.terms) <= FEW:
            return all(term.matches(namespace, labels, labels_of) for term, _ in self.terms)
        return self._matching(namespace, labels, labels_of).bit_count() == len(self.terms)

    def _matching(self, namespace: str, labels: Mapping[str, str], labels_of: LabelsOf) -> int:
        """Return the terms (a bit each) that match a pod."""
        keys, count = self._alternatives.keys, len(self.terms)
        seen = {key: labels[key] for key in keys & labels.keys()}
        seen[_NAMESPACE] = namespace
        if self.by_namespace_labels:
            seen |= {_OF_NAMESPACE + key: value for key, value in labels_of(namespace).items()}
        found = self._alternatives.matching(seen)
        return (found | found >> count) & ((1 << count) - 1)


_sets: weakref.WeakValueDictionary[tuple[tuple[AffinityTerm, int], ...], TermSet] = weakref.WeakValueDictionary()


def term_set(terms: Sequence[tuple[AffinityTerm, int]]) -> TermSet | None:
    """Return the set of these terms; None for none."""
    if not terms:
        return None
    wanted = tuple(terms)
    known = _sets.get(wanted)
    if known is None:
        known = _sets[wanted] = TermSet(wanted)
    return known


def _explicit(term: AffinityTerm) -> Conjunction | None:
    """A term for the namespaces that it names, or for all."""
    if term.namespaces is None:
        return _required(term.selector)
    return _required(term.selector, [(_NAMESPACE, "in", term.namespaces)])


def _by_label(term: AffinityTerm) -> Conjunction | None:
    """A term for the namespaces that its selector chooses."""
    if term.namespace_selector is None or term.namespace_selector.nothing:
        return None
    chosen = [(_OF_NAMESPACE + r.key, r.operator, r.values) for r in term.namespace_selector.requirements]
    return _required(term.selector, chosen)


def _required(selector: LabelSelector, more: Sequence[Requirement] = ()) -> Conjunction | None:
    if selector.nothing:
        return None
    return [*more, *((r.key, r.operator, r.values) for r in selector.requirements)]
