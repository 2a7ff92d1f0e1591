"""Which selectors may be about a pod or a namespace: by one label that each asks for, so the others are not compared. No I/O.

A selector that asks for no label with one value (Exists, NotIn, an empty one) is compared with every pod of its namespace, or
of all namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from kube.selectors import LabelSelector
from netproxy.policy.selector import Selector

T = TypeVar("T")
Label = tuple[str, str]


def label_of(selector: LabelSelector) -> Label | None:
    """Return a label that everything that is selected has; None where none is known."""
    for each in selector.requirements:
        if each.operator == "in" and len(each.values) == 1:
            return each.key, next(iter(each.values))
    return None


class SelectorIndex(Generic[T]):
    """Selectors, each with a value."""

    def __init__(self) -> None:
        self._own: dict[str, dict[Label | None, dict[Selector, T]]] = {}
        """By namespace, then by the label of the pods."""
        self._wide: dict[Label | None, dict[Label | None, dict[Selector, T]]] = {}
        """By the label of the namespaces, then by that of the pods."""

    def add(self, selector: Selector, value: T) -> None:
        if selector.namespaces is None:
            place = self._own.setdefault(selector.namespace, {})
        else:
            place = self._wide.setdefault(label_of(selector.namespaces), {})
        place.setdefault(label_of(selector.pods), {})[selector] = value

    def remove(self, selector: Selector) -> None:
        if selector.namespaces is None:
            _remove(self._own, selector.namespace, selector)
        else:
            _remove(self._wide, label_of(selector.namespaces), selector)

    def about_pod(
        self, namespace: str, namespace_labels: Mapping[str, str], *labels: Mapping[str, str]
    ) -> Iterator[tuple[Selector, T]]:
        """Yield the selectors that may be about a pod that has, or had, some labels."""
        places = [self._own.get(namespace), *self._wide_about(namespace_labels)]
        for place in filter(None, places):
            for label in {None}.union(*(each.items() & place.keys() for each in labels)):
                yield from place.get(label, {}).items()

    def about_namespace(self, *labels: Mapping[str, str]) -> Iterator[tuple[Selector, T]]:
        """Yield the selectors of namespaces that may be about one that has, or had, some labels."""
        for place in self._wide_about(*labels):
            for found in place.values():
                yield from found.items()

    def _wide_about(self, *labels: Mapping[str, str]) -> Iterator[dict[Label | None, dict[Selector, T]]]:
        for label in {None}.union(*(each.items() & self._wide.keys() for each in labels)):
            if label in self._wide:
                yield self._wide[label]


K = TypeVar("K")


def _remove(places: dict[K, dict[Label | None, dict[Selector, T]]], where: K, selector: Selector) -> None:
    place, label = places[where], label_of(selector.pods)
    del place[label][selector]
    if not place[label]:
        del place[label]
    if not place:
        del places[where]
