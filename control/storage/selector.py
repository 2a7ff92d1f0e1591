"""Selectors of watches, in a form that watches share: equal ones are evaluated once for a change.

A selector that requires certain values of one label or field is looked up by the values that a changed object has, so that a
thousand nodes that each watch their own pods cost a look-up instead of a thousand comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple

from control.storage.entry import Entry, Predicate
from control.storage.watcher import Change, WatchEvent

Part = Literal["labels", "fields"]


class Required(NamedTuple):
    """Values of one label or field, of which each matching object has one; a field that is absent is empty."""

    part: Part
    name: str
    values: frozenset[str]


class Selector:
    """A predicate of a watch, and what is known about it. `key` is equal for equal selectors of one resource, None: unknown."""

    __slots__ = ("_unchanged", "costly", "key", "matches", "required")

    def __init__(
        self,
        matches: Predicate,
        key: Hashable = None,
        required: Required | None = None,
        parts: tuple[Part, ...] | None = None,
        *,
        costly: bool = False,
    ) -> None:
        """`parts` are those that it reads, None: unknown. One comparison by a `costly` one can take milliseconds."""
        self.matches, self.key, self.required, self.costly = matches, key, required, costly
        self._unchanged = _UNCHANGED.get(parts, _unknown)

    def event_for(self, change: Change) -> WatchEvent | None:
        """Return the event for watchers of objects that match; None if the object matches neither before nor after."""
        entry, previous = change.entry, change.previous
        now = entry is not None and self.matches(entry)
        if previous is None:
            before = False
        else:
            before = now if self._unchanged(change) else self.matches(previous)
        return change.event(now=now, before=before)


def values_of(entry: Entry, part: Part, name: str) -> str | None:
    """Return an object's value that `Required` compares, None if there is none."""
    return entry.labels.get(name) if part == "labels" else entry.fields.get(name, "")


def _unknown(change: Change) -> bool:
    return False


def _both(change: Change) -> bool:
    return change.same_labels() and change.same_fields()


_UNCHANGED: dict[tuple[Part, ...] | None, Callable[[Change], bool]] = {
    ("labels",): Change.same_labels,
    ("fields",): Change.same_fields,
    ("labels", "fields"): _both,
}
"""Functions that compare what a selector reads before and after a change, by the parts of an object that it reads."""
