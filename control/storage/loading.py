"""Objects of a listing on their way into the cache of a resource, page by page.

The values of a page are freed before the next page is read, so a start needs no memory for all objects twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from control.storage import codec
from control.storage.entry import Entry, Fields
from control.storage.store import Item
from kube.json_object import UNREADABLE
from kube.nesting import DEEPEST, is_deep

log = logging.getLogger(__name__)


class Loading:
    """Entries by key, in the order of the listing, and keys whose values cannot be decrypted (revision and reason)."""

    def __init__(self, kind: str, api_version: str, fields: Fields) -> None:
        self.fields = fields
        self.entries: dict[str, Entry] = {}
        self.unreadable: dict[str, tuple[int, str]] = {}
        self._head = codec.head(kind, api_version)

    def add(self, items: Iterable[Item]) -> None:
        """Add a page; values that are not JSON are ignored."""
        head, fields, entries = self._head, self.fields, self.entries
        stored, size = head + b'"', len(head)
        for item in items:
            key, value, revision = item.key, item.value, item.revision
            if value.startswith(stored) and not is_deep(value):  # as `codec.with_revision` would, in half the time
                entries[key] = Entry(key, revision, b"%b%d%b" % (head, revision, value[size:]), fields)
            elif item.failure:
                self.unreadable[key] = (revision, item.failure)
            elif (entry := readable(key, value, revision, fields)) is not None:
                entries[key] = entry


def readable(key: str, value: bytes, revision: int, fields: Fields) -> Entry | None:
    """Return the entry of a value that is JSON; others (protobuf, damage) are ignored, not fatal."""
    if (found := codec.shallow(value)) is not value:
        log.warning(
            "%s at revision %d nests more than %d levels deep: the deeper ones are ignored", key, revision, DEEPEST
        )
    try:
        return Entry(key, revision, codec.with_revision(found, revision), fields)
    except UNREADABLE as error:
        log.error("ignoring %s at revision %d: %s", key, revision, error)
        return None
