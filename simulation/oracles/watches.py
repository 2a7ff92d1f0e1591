"""Rules of watches and lists: compares what a client receives with the true history of the store.

A watch sends the changes of its scope in the order of their revisions, each once and none is missing; nothing at or below a
bookmark follows it; and a list contains the objects of one revision, also if it comes in pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from simulation.oracles.true_history import Change, Scope, State, TrueHistory

Object = dict[str, Any]
Broken = tuple[str, str]
"""Rule and text of a violation."""


class WatchCheck:
    """One watch after a revision. Each method returns the rules that are broken."""

    def __init__(self, history: TrueHistory, scope: Scope, revision: int) -> None:
        self._history, self.scope = history, scope
        self.position = revision
        """Revision up to which everything was received."""
        self.events = self.bookmarks = 0

    @property
    def checkable(self) -> bool:
        """Return whether the history since the position is known."""
        return self.position >= self._history.floor

    def event(self, kind: str, obj: Object) -> list[Broken]:
        """Check an event that is no bookmark."""
        revision, self.events = revision_of(obj), self.events + 1
        name = f"{kind} of {obj['metadata']['name']} at {revision}"
        if revision <= self.position:
            return [("watch order", f"{self.scope}: {name} follows revision {self.position}")]
        broken, found = [], None
        for change, expected in self._expected(revision):
            if change.revision < revision:
                broken.append(self._missing(change, expected[0], f"before {name}"))
            else:
                found = expected
        self.position = revision
        if found is None:
            return [*broken, ("watch event", f"{self.scope}: {name} was sent without a change")]
        if found[0] != kind or not same(obj, found[1]):
            broken.append(("watch event", f"{self.scope}: {name} is not the {found[0]} of the store"))
        return broken

    def bookmark(self, revision: int) -> list[Broken]:
        """Check a bookmark."""
        self.bookmarks += 1
        if revision < self.position or revision > self._history.revision:
            text = f"bookmark {revision} follows revision {self.position} of {self._history.revision}"
            return [("bookmark", f"{self.scope}: {text}")]
        broken = [
            self._missing(change, kind, f"before the bookmark {revision}")
            for change, (kind, _) in self._expected(revision)
        ]
        self.position = revision
        return broken

    def overdue(self) -> list[Broken]:
        """Check that nothing remains to be received."""
        everything = self._history.revision
        return [self._missing(change, kind, "to this day") for change, (kind, _) in self._expected(everything)]

    def _expected(self, until: int) -> Iterator[tuple[Change, tuple[str, State]]]:
        for change in self._history.after(self.scope.folder, self.position):
            if change.revision > until:
                return
            if (expected := self.scope.event(change)) is not None:
                yield change, expected

    def _missing(self, change: Change, kind: str, when: str) -> Broken:
        return "watch gap", f"{self.scope}: {kind} of {change.key} at {change.revision} was not sent {when}"


class ListCheck:
    """A list of a scope, that began when the newest revision was `begun`: of the present, or (`exact`) of a revision."""

    def __init__(self, history: TrueHistory, scope: Scope, begun: int, *, exact: int = 0, recent: bool = True) -> None:
        self._history, self._scope, self._begun, self._exact, self._recent = history, scope, begun, exact, recent
        self.revision = 0
        self._items: list[Object] = []

    def page(self, revision: int, items: Sequence[Object], remaining: int | None, *, last: bool) -> list[Broken]:
        """Check a page; the whole list with the last one."""
        broken, scope = [], self._scope
        if self._items and revision != self.revision:
            broken.append(("list", f"{scope}: a page is of revision {revision}, the first one of {self.revision}"))
        elif not self._items:
            broken += self._fresh(revision)
        self.revision = revision
        self._items += items
        if revision < self._history.floor:
            return broken
        expected = self._history.listed(scope, revision)
        if remaining is not None and not last and remaining != len(expected) - len(self._items):
            left = len(expected) - len(self._items)
            broken.append(("list", f"{scope} at {revision}: {left} objects remain, not {remaining}"))
        return broken + (list(self._compare(expected)) if last else [])

    def _fresh(self, revision: int) -> Iterator[Broken]:
        if revision > self._history.revision:
            yield "list", f"{self._scope}: revision {revision} is later than {self._history.revision}"
        if self._exact and revision != self._exact:
            yield "list", f"{self._scope}: revision {revision} was sent for {self._exact}"
        if self._recent and revision < self._begun:
            yield "stale read", f"{self._scope}: a list that began at {self._begun} has revision {revision}"

    def _compare(self, expected: dict[str, State]) -> Iterator[Broken]:
        scope = self._scope
        keys = [key_of(scope, each) for each in self._items]
        if keys != list(expected):
            wrong = sorted(set(keys) ^ set(expected)) or "the same objects in another order"
            yield "list", f"{scope} at {self.revision}: differs from the store in {wrong}"
            return
        for key, obj in zip(keys, self._items, strict=True):
            if not is_state(obj, expected[key]):
                yield "list", f"{scope} at {self.revision}: {key} is not what the store has"


def check_get(history: TrueHistory, scope: Scope, key: str, obj: Object | None, begun: int) -> list[Broken]:
    """Check the answer to a GET at "most recent" (None: 404), that began at a revision and has ended now."""
    if begun < history.floor:
        return []
    for state in history.between(key, begun, history.revision):
        if (obj is None and state is None) or (obj is not None and state is not None and is_state(obj, state)):
            return []
    shown = "no object" if obj is None else f"revision {revision_of(obj)}"
    text = f"{key}: a read from {begun} to {history.revision} returned {shown}, which was not there meanwhile"
    return [("stale read", text)]


def revision_of(obj: Object) -> int:
    """Return the resourceVersion of an object."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def key_of(scope: Scope, obj: Object) -> str:
    """Return the key of an object of a scope in the store."""
    meta = obj["metadata"]
    return f"{scope.folder}{meta['namespace']}/{meta['name']}" if "namespace" in meta else scope.folder + meta["name"]


def is_state(obj: Object, state: State) -> bool:
    """Return whether an object is that of a revision."""
    return revision_of(obj) == state.revision and same(obj, state)


def same(obj: Object, state: State) -> bool:
    """Return whether an object is a stored one but for the revision, which the store does not contain."""
    stored: Object = msgspec.json.decode(state.value)
    return _without_revision(obj) == _without_revision(stored)


def _without_revision(obj: Object) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": meta, "kind": "", "apiVersion": ""}
