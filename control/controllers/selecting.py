"""Which workloads, budgets or autoscalers select a pod: selectors are compiled once, and found by a label that they demand.

A selector of 1 MiB takes a second to compile, and pods change often. Kept are the selectors of the objects that the informer
holds, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from kube.client import key_of, metadata_of
from kube.informer import Change, Informer
from kube.selectors import NOTHING, LabelSelector, SelectorError, from_label_selector, from_map

T = TypeVar("T", bound=msgspec.Struct)
_Place = tuple[str, str, str]
"""A namespace, and a label's key and value; both are "" for selectors that demand no label."""
MOST_DEMANDED = 64
"""Requirements of one selector among which a label is looked for that it demands."""


def compiled(source: Any) -> LabelSelector:
    """Compile an object's spec.selector: a LabelSelector, or the map of a ReplicationController. Raises SelectorError."""
    return from_map(source) if isinstance(source, dict) else from_label_selector(source)


def of_spec(obj: Any) -> Any:
    """Return spec.selector."""
    return obj.spec.selector


class SelectorIndex:
    """Compiled selectors by key, each found by one label that it demands."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Place | None, LabelSelector]] = {}
        self._at: dict[_Place, dict[str, None]] = {}

    def get(self, key: str) -> LabelSelector | None:
        known = self._known.get(key)
        return known[1] if known is not None else None

    def put(self, key: str, namespace: str, selector: LabelSelector) -> None:
        """Keep a selector in place of the one that the key has, under the label that fewest others are kept under."""
        self.drop(key)
        place: _Place | None = None
        if not selector.nothing:
            places = ((namespace, *label) for label in _demanded(selector))
            place = min(places, key=lambda place: len(self._at.get(place, ())), default=(namespace, "", ""))
            self._at.setdefault(place, {})[key] = None
        self._known[key] = place, selector

    def drop(self, key: str) -> None:
        place, _ = self._known.pop(key, (None, NOTHING))
        if place is not None:
            del self._at[place][key]
            if not self._at[place]:
                del self._at[place]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the keys of the namespace's selectors that demand none of the labels, or one that is among them."""
        places = ((namespace, *pair) for pair in (("", ""), *labels.items()))
        return [key for place in places for key in self._at.get(place, ())]

    def matching(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the keys of the namespace's selectors that select these labels."""
        return [key for key in self.candidates(namespace, labels) if self._known[key][1].matches(labels)]


class Selecting(Generic[T]):
    """The selectors of an informer's objects. `source` returns an object's selector as it is written."""

    def __init__(self, informer: Informer[T], source: Callable[[Any], Any] = of_spec) -> None:
        self._source = source
        self._written: dict[str, Any] = {}
        self._index = SelectorIndex()
        informer.subscribe(self._changed)

    def of(self, obj: T) -> LabelSelector:
        """Return the selector of an object. Raises SelectorError."""
        source, key = self._source(obj), key_of(obj)
        known = self._index.get(key)
        unchanged = known is not None and known is not NOTHING and self._written[key] == source
        return known if known is not None and unchanged else compiled(source)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the keys of the namespace's objects that select these labels."""
        return self._index.matching(namespace, labels)

    def _changed(self, change: Change[Any]) -> None:
        key, source = change.key, self._source(change.new)
        if change.type == "DELETED":
            self._index.drop(key)
            self._written.pop(key, None)
        elif key not in self._written or self._written[key] != source:
            self._written[key] = source
            self._index.put(key, metadata_of(change.new).namespace or "", _readable(source))


def _readable(source: Any) -> LabelSelector:
    try:
        return compiled(source)
    except SelectorError:
        return NOTHING  # whoever asks for it by `of` compiles it again and is told


def _demanded(selector: LabelSelector) -> Iterator[tuple[str, str]]:
    """Yield labels that whatever is selected has."""
    for requirement in selector.requirements[:MOST_DEMANDED]:
        if requirement.operator == "in" and len(requirement.values) == 1:
            yield requirement.key, next(iter(requirement.values))
