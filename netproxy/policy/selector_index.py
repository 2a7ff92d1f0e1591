"""Which selectors may be about a pod or a namespace: by a label that each asks for, so the others are not compared. No I/O.

A selector that asks for one of few values of a label is found by each of them, one that only asks for a label (Exists, In with
many values) by its key. Any other (NotIn, DoesNotExist, an empty one) is compared with every pod of its namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from kube.selectors import LabelSelector
from netproxy.policy.selector import Selector

T = TypeVar("T")
Hint = tuple[str, str | None] | None
"""What everything that is selected has: a label, or one with this key; None where nothing is known."""
Place = dict[Hint, dict[Selector, T]]
FEW = 8
"""A selector is found by so many values at most."""
FORBIDDING = ("notin", "!")


def hints_of(selector: LabelSelector, most: int = FEW) -> tuple[Hint, ...]:
    """Return hints of which everything that is selected fits one: labels, `most` of them at most, or a key, or nothing."""
    asking = [each for each in selector.requirements if each.operator not in FORBIDDING]
    among = min((each for each in asking if each.operator == "in"), key=lambda each: len(each.values), default=None)
    if among is not None and len(among.values) <= most:
        return tuple((among.key, value) for value in among.values)
    return ((asking[0].key, None),) if asking else (None,)


def places_of(selector: Selector) -> list[tuple[str | Hint, Hint]]:
    """Return where a selector is found: by its namespace or a hint of the namespaces, then by one of the pods."""
    pods = hints_of(selector.pods)
    if selector.namespaces is None:
        return [(selector.namespace, each) for each in pods]
    namespaces = hints_of(selector.namespaces, FEW // max(1, len(pods)))
    return [(namespace, each) for namespace in namespaces for each in pods]


def _fitting(labels: Iterable[Mapping[str, str]]) -> set[Hint]:
    """Return the hints that labels fit."""
    found: set[Hint] = {None}
    for each in labels:
        found.update(each.items())
        found.update((key, None) for key in each)
    return found


class SelectorIndex(Generic[T]):
    """Selectors, each with a value."""

    def __init__(self) -> None:
        self._places: dict[str | Hint, Place[T]] = {}
        """By namespace or the hint of namespaces, then by that of the pods."""

    def add(self, selector: Selector, value: T) -> None:
        for where, hint in places_of(selector):
            self._places.setdefault(where, {}).setdefault(hint, {})[selector] = value

    def remove(self, selector: Selector) -> None:
        for where, hint in places_of(selector):
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
        found = [self._places[hint] for hint in _fitting(namespace_labels) if hint in self._places]
        return [self._places[namespace], *found] if namespace in self._places else found

    def about_pod(self, places: Iterable[Place[T]], *labels: Mapping[str, str]) -> Iterator[tuple[Selector, T]]:
        """Yield the selectors of places that may be about a pod that has, or had, some labels."""
        fitting = _fitting(labels)
        for place in places:
            for hint in fitting & place.keys():
                yield from place[hint].items()

    def about_namespace(self, *labels: Mapping[str, str]) -> Iterator[tuple[Selector, T]]:
        """Yield the selectors of namespaces that may be about one that has, or had, some labels."""
        for hint in _fitting(labels):
            for found in self._places.get(hint, {}).values():
                yield from found.items()
