"""Index of selectors by a label that each requires, so that a pod is compared with few of them. No I/O.

A selector that requires one of few values of a label is found by each of them, one that only requires a label (Exists, In with
many values) by its key. Any other (NotIn, DoesNotExist, an empty one) is compared with every pod of its namespaces.
Where it requires several labels, placement.py chooses one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar, cast

from kube.selectors import LabelSelector, Requirement
from netproxy.policy.selector import Selector

T = TypeVar("T")
Hint = tuple[str, str | None] | None
"""A label that everything selected has, or its key with None; None alone where no label is required."""
H = TypeVar("H", bound="str | Hint")
Place = dict[Hint, dict[Selector, T]]
Places = tuple[tuple[str | Hint, Hint], ...]
"""The places of a selector: by a namespace or a hint of namespaces, and by a hint of pods."""
FEW = 8
"""The most values by which a selector is found."""
NEGATIVE_OPERATORS = ("notin", "!")


def hints_of(selector: LabelSelector, most: int = FEW) -> list[tuple[Hint, ...]]:
    """Return the ways to find a selector: each is hints of which everything that is selected fits one.

    First those of values, `most` of them at most; last a key that it requires otherwise, or nothing if it requires none.
    """
    among: list[Requirement] = []
    key = ""
    for each in selector.requirements:
        if each.operator == "in" and len(each.values) <= most:
            among.append(each)
        elif each.operator not in NEGATIVE_OPERATORS:
            key = key or each.key
    among.sort(key=lambda each: len(each.values))
    found: list[tuple[Hint, ...]] = [tuple((each.key, value) for value in each.values) for each in among[:FEW]]
    return [*found, ((key, None),)] if key else found or [(None,)]


def alternatives(selector: Selector) -> Iterator[Places]:
    """Yield the ways to find a selector: by its namespace or hints of the namespaces, then by those of the pods."""
    for pods in hints_of(selector.pods):
        if selector.namespaces is None:
            yield tuple((selector.namespace, each) for each in pods)
        else:
            for namespaces in hints_of(selector.namespaces, FEW // len(pods)):
                yield tuple((namespace, each) for namespace in namespaces for each in pods)


def _fitting(labels: Iterable[Mapping[str, str]]) -> set[Hint]:
    """Return the hints that labels fit."""
    found: set[Hint] = {None}
    for each in labels:
        found.update(each.items())
        found.update((key, None) for key in each)
    return found


def _fits(hint: str | Hint, labels: Iterable[Mapping[str, str]]) -> bool:
    if hint is None:
        return True
    if isinstance(hint, str):  # a namespace
        return False
    key, value = hint
    return any([key in each if value is None else each.get(key) == value for each in labels])


def steps(labels: Iterable[Mapping[str, str]], hints: Collection[str | Hint]) -> int:
    """Return how many hints are looked up to find those that labels fit."""
    return min(len(hints), 1 + 2 * sum(map(len, labels)))


def _common(labels: Collection[Mapping[str, str]], hints: Collection[H]) -> list[H]:
    """Return those of hints that labels fit; there may be far more of either."""
    if steps(labels, hints) == len(hints):
        return [hint for hint in hints if _fits(hint, labels)]
    return [cast(H, hint) for hint in _fitting(labels) if hint in hints]


class SelectorIndex(Generic[T]):
    """Maps selectors to values. Each namespace whose policies use a selector may add it at places of its own."""

    def __init__(self) -> None:
        self._places: dict[str | Hint, Place[T]] = {}
        """By namespace or the hint of namespaces, then by that of the pods."""
        self._times: Counter[tuple[str | Hint, Hint, Selector]] = Counter()
        """The number of times that a selector was added at a place."""

    def add(self, selector: Selector, value: T, places: Places) -> None:
        for where, hint in places:
            self._times[where, hint, selector] += 1
            self._places.setdefault(where, {}).setdefault(hint, {})[selector] = value

    def remove(self, selector: Selector, places: Places) -> None:
        for where, hint in places:
            self._times[where, hint, selector] -= 1
            if self._times[where, hint, selector]:
                continue
            del self._times[where, hint, selector]
            place = self._places[where]
            del place[hint][selector]
            if not place[hint]:
                del place[hint]
            if not place:
                del self._places[where]

    def namespaces(self) -> Iterable[str | Hint]:
        """Return the names of namespaces and hints by which selectors are found."""
        return self._places.keys()

    def places(self, namespace: str, *namespace_labels: Mapping[str, str]) -> list[Place[T]]:
        """Return the places of selectors that may be about pods of a namespace that has, or had, some labels."""
        found = [self._places[hint] for hint in _common(namespace_labels, self._places)]
        return [self._places[namespace], *found] if namespace in self._places else found

    def about_pod(self, places: Iterable[Place[T]], *labels: Mapping[str, str]) -> Iterator[tuple[Selector, T]]:
        """Yield the selectors of places that may be about a pod that has, or had, some labels."""
        for place in places:
            for hint in _common(labels, place):
                yield from place[hint].items()

    def about_namespace(self, *labels: Mapping[str, str]) -> Iterator[tuple[Selector, T, Places]]:
        """Yield the selectors of namespaces that may be about one that has, or had, some labels, and where each is."""
        for where in _common(labels, self._places):
            for hint, found in self._places[where].items():
                for selector, value in found.items():
                    yield selector, value, ((where, hint),)
