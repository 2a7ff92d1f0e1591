"""The history of a test: the objects at its beginning, and all changes in order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from control.storage import codec
from control.storage.store import Item
from wherry.testing.errors import ClusterError
from wherry.testing.saving import file_format
from wherry.testing.saving.objects import SavedObject

ROOT = "/registry/"


class Change(msgspec.Struct, omit_defaults=True):
    """One change of an object. `value` is null for a deletion; `user` is empty for work of the API server itself."""

    revision: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: str
    time: datetime
    user: str = ""
    verb: str = ""
    agent: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def object(self) -> str:
        """The object: `pods/default/web-1`."""
        return self.key.removeprefix(ROOT)

    def __str__(self) -> str:
        who = self.user or "the API server"
        verb = self.verb or ("expire" if self.type == "DELETED" else "write")
        return f"{self.revision} {self.time:%Y-%m-%d %H:%M:%S.%f} {self.type} {self.object} ({verb} by {who})"


class History(msgspec.Struct):
    """The history of one test. `revision` is that of the objects at its beginning."""

    test: str
    revision: int
    begin: datetime
    objects: list[SavedObject]
    changes: list[Change]
    dropped: int = 0
    """Number of changes of the test that came before the beginning: a history is limited."""

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Return the history in a file that the pytest plugin has written. Raise ClusterError."""
        history = file_format.read(Path(path), "history", cls)
        if any(change.revision != number for number, change in enumerate(history.changes, history.revision + 1)):
            raise ClusterError(f"{path} is damaged: its revisions have gaps")
        return history

    def save(self, path: Path) -> None:
        """Write the history to a file with mode 0600. Raise ClusterError."""
        file_format.write(path, "history", self)

    @property
    def last(self) -> int:
        """The revision of the last change."""
        return self.changes[-1].revision if self.changes else self.revision

    def upto(self, revision: int) -> Sequence[Change]:
        """Return the changes up to a revision. Raise ClusterError for one that the history does not have."""
        if not self.revision <= revision <= self.last:
            raise ClusterError(f"no revision {revision}: the history has {self.revision} to {self.last}")
        return self.changes[: revision - self.revision]

    def time(self, revision: int) -> datetime:
        """Return the time of a revision. Raise ClusterError."""
        changes = self.upto(revision)
        return changes[-1].time if changes else self.begin

    def items(self, revision: int) -> list[Item]:
        """Return the objects of a revision as the store had them. Raise ClusterError."""
        items = {each.key: each.item() for each in self.objects}
        for change in self.upto(revision):
            before = items.pop(change.key, None)
            if change.type != "DELETED":
                created = before.create_revision if before is not None else change.revision
                items[change.key] = Item(change.key, bytes(change.value), change.revision, created)
        return list(items.values())

    def objects_at(self, revision: int) -> dict[str, dict[str, Any]]:
        """Return the objects of a revision by their names (`pods/default/web-1`). Raise ClusterError."""
        return {
            item.key.removeprefix(ROOT): codec.decode(codec.with_revision(item.value, item.revision))
            for item in self.items(revision)
        }
