"""The true history of some folders of the store, which lists and watches of them must show.

Only the newest changes are kept; what a client may have missed before `floor` cannot be checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from control.storage.memory import MemoryStore
from control.storage.memory_rows import Row

MOST_CHANGES = 20_000
"""Changes that are kept, most of them of pods: as many as an hour of a simulated cluster has."""


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class State(msgspec.Struct):
    """An object at a revision: what selectors compare, and its stored form."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    value: bytes = b""
    revision: int = 0


_decoder = msgspec.json.Decoder(State)


class Change(msgspec.Struct, frozen=True):
    """A write: `before` is None for a creation, `after` for a deletion."""

    revision: int
    key: str
    before: State | None
    after: State | None


class Scope(msgspec.Struct, frozen=True):
    """A folder of the store with selectors, which a client lists and watches."""

    path: str
    """Of the collection in the API."""
    folder: str
    """Of the resource in the store."""
    namespace: str = ""
    label: tuple[str, str] | None = None
    node: str = ""
    """Value of the field spec.nodeName."""

    @property
    def query(self) -> Mapping[str, str]:
        """Return the selectors as parameters of a request."""
        found = {}
        if self.label is not None:
            found["labelSelector"] = "=".join(self.label)
        if self.node:
            found["fieldSelector"] = f"spec.nodeName={self.node}"
        return found

    @property
    def selective(self) -> bool:
        """Return whether a selector is compared with each object."""
        return self.label is not None or bool(self.node)

    def matches(self, state: State | None) -> bool:
        """Return whether an object is part of the scope."""
        if state is None or (self.namespace and state.metadata.namespace != self.namespace):
            return False
        if self.label is not None and state.metadata.labels.get(self.label[0]) != self.label[1]:
            return False
        return not self.node or state.spec.node_name == self.node

    def event(self, change: Change) -> tuple[str, State] | None:
        """Return the type and the object of the watch event of a change, None if there is none."""
        now, before = self.matches(change.after), self.matches(change.before)
        if now and change.after is not None:
            return "MODIFIED" if before else "ADDED", change.after
        if before and change.before is not None:
            return "DELETED", change.before
        return None

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        selected = "".join(f" with {value}" for value in self.query.values())
        return f"{self.path.rpartition('/')[2]}{place}{selected}"


class TrueHistory:
    """States of all objects of some folders of a store, by revision."""

    def __init__(self, store: MemoryStore, folders: tuple[str, ...]) -> None:
        self.revision = self.floor = 0
        """Revision of the newest write of all, and that up to which changes have been dropped."""
        self._changes: dict[str, deque[Change]] = {folder: deque() for folder in folders}
        self._revisions: dict[str, list[int]] = {folder: [] for folder in folders}
        self._versions: dict[str, list[tuple[int, State | None]]] = {}
        self._order: deque[Change] = deque()
        store.subscribe(self._written)

    def _written(self, row: Row) -> None:
        item = row.item
        self.revision = item.revision
        folder = next((each for each in self._changes if item.key.startswith(each)), None)
        if folder is None:
            return
        versions = self._versions.setdefault(item.key, [])
        after = None
        if not row.deleted:
            after = _decoder.decode(item.value)
            after.value, after.revision = item.value, item.revision
        change = Change(item.revision, item.key, versions[-1][1] if versions else None, after)
        versions.append((item.revision, after))
        self._changes[folder].append(change)
        self._revisions[folder].append(item.revision)
        self._order.append(change)
        if len(self._order) > MOST_CHANGES:
            self._drop()

    def _drop(self) -> None:
        oldest = self._order.popleft()
        self.floor = oldest.revision
        folder = next(each for each in self._changes if oldest.key.startswith(each))
        self._changes[folder].popleft()
        del self._revisions[folder][0]
        versions = self._versions[oldest.key]
        while len(versions) > 1 and versions[1][0] <= self.floor:
            del versions[0]
        if versions[0][1] is None and len(versions) == 1 and versions[0][0] <= self.floor:
            del self._versions[oldest.key]

    def after(self, folder: str, revision: int) -> Iterator[Change]:
        """Return the changes of a folder after a revision that is not below `floor`."""
        start = bisect_right(self._revisions[folder], revision)
        changes = self._changes[folder]
        for index in range(start, len(changes)):
            yield changes[index]

    def at(self, key: str, revision: int) -> State | None:
        """Return an object at a revision, None if it did not exist."""
        found = None
        for changed, state in self._versions.get(key, ()):
            if changed > revision:
                break
            found = state
        return found

    def between(self, key: str, first: int, last: int) -> list[State | None]:
        """Return all states that an object had from a revision to another."""
        return [self.at(key, first)] + [
            state for revision, state in self._versions.get(key, ()) if first < revision <= last
        ]

    def listed(self, scope: Scope, revision: int) -> dict[str, State]:
        """Return the objects of a scope at a revision, by key, in the order of a list."""
        found = {}
        for key in self._versions:
            if key.startswith(scope.folder):
                state = self.at(key, revision)
                if state is not None and scope.matches(state):
                    found[key] = state
        return dict(sorted(found.items()))
