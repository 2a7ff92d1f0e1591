"""Which workloads or budgets select a pod: selectors are compiled once, and found by a label that they demand.

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


def compiled(source: Any) -> LabelSelector:
    """Compile an object's spec.selector: a LabelSelector, or the map of a ReplicationController. Raises SelectorError."""
    return from_map(source) if isinstance(source, dict) else from_label_selector(source)


def of_spec(obj: Any) -> Any:
    """Return spec.selector."""
    return obj.spec.selector


class Selecting(Generic[T]):
    """The selectors of an informer's objects. `source` returns an object's selector as it is written."""

    def __init__(self, informer: Informer[T], source: Callable[[Any], Any] = of_spec) -> None:
        self._source = source
        self._known: dict[str, tuple[Any, LabelSelector]] = {}
        self._places: dict[tuple[str, str, str], set[str]] = {}
        """Keys of objects by namespace and the label that their selectors demand; ("", "") where there is none."""
        informer.subscribe(self._changed)

    def of(self, obj: T) -> LabelSelector:
        """Return the selector of an object. Raises SelectorError."""
        source, known = self._source(obj), self._known.get(key_of(obj))
        return known[1] if known is not None and known[1] is not NOTHING and known[0] == source else compiled(source)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the keys of the namespace's objects that select these labels."""
        found: list[str] = []
        for pair in (("", ""), *labels.items()):
            for key in self._places.get((namespace, *pair), ()):
                if self._known[key][1].matches(labels):
                    found.append(key)
        return found

    def _changed(self, change: Change[Any]) -> None:
        key, source = change.key, self._source(change.new)
        known = self._known.get(key)
        if change.type != "DELETED" and known is not None and known[0] == source:
            return
        namespace = metadata_of(change.new).namespace or ""
        if known is not None:
            del self._known[key]
            place = (namespace, *_demanded(known[1]))
            self._places[place].discard(key)
            if not self._places[place]:
                del self._places[place]
        if change.type != "DELETED":
            selector = _readable(source)
            self._known[key] = source, selector
            self._places.setdefault((namespace, *_demanded(selector)), set()).add(key)


def _readable(source: Any) -> LabelSelector:
    try:
        return compiled(source)
    except SelectorError:
        return NOTHING  # whoever asks for it by `of` compiles it again and is told


def _demanded(selector: LabelSelector) -> tuple[str, str]:
    """Return a label that whatever is selected has, or ("", "")."""
    return next(_single(selector), ("", ""))


def _single(selector: LabelSelector) -> Iterator[tuple[str, str]]:
    for requirement in selector.requirements:
        if requirement.operator == "in" and len(requirement.values) == 1:
            yield requirement.key, next(iter(requirement.values))
