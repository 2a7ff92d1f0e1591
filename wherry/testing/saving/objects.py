"""Objects of a cluster's store in a file: their JSON, with revisions and times to live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from control.storage.store import Item


class SavedObject(msgspec.Struct, omit_defaults=True):
    """One object at its key; `ttl` is the number of seconds after which it is deleted, 0 for never."""

    key: str
    value: msgspec.Raw
    revision: int
    created: int
    ttl: int = 0

    def item(self) -> Item:
        """Return the object as the store has it."""
        return Item(self.key, bytes(self.value), self.revision, self.created)


def saved(items: Iterable[Item], lifetimes: Mapping[str, int]) -> list[SavedObject]:
    """Return objects of the store for a file."""
    return [
        SavedObject(each.key, msgspec.Raw(each.value), each.revision, each.create_revision, lifetimes.get(each.key, 0))
        for each in items
    ]
