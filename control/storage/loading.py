"""Objects of a listing on their way into the cache of a resource, page by page.

The values of a page are freed before the next page is read, so a start needs no memory for all objects twice. A page is added
in steps: the cache is also loaded while requests are answered, for a new definition or after a gap in the watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from control.event_loop.pacing import SLICE_BYTES
from control.storage import codec
from control.storage.entry import Entry, Fields
from control.storage.index import Index
from control.storage.store import Item, Page, Store
from kube.collecting import uncollected
from kube.json_object import UNREADABLE
from kube.nesting import DEEPEST, is_deep

log = logging.getLogger(__name__)
PAGE = 2000
STEP_ITEMS = 256
"""Objects of a step, if they have fewer than SLICE_BYTES."""


async def pages(store: Store, prefix: str, revision: int = 0) -> AsyncIterator[Page]:
    """Yield the pages of a listing at one revision, 0 for the present one."""
    last = ""
    while True:
        page = await store.list(prefix, revision, last, PAGE, counted=False)
        yield page
        if not page.more:
            return
        revision, last = page.revision, page.items[-1].key


class Loading:
    """Entries by key, in the order of the listing, and keys whose values cannot be decrypted (revision and reason)."""

    def __init__(self, kind: str, api_version: str, fields: Fields, index: Index | None = None) -> None:
        """Fill an index with the entries, if one is given."""
        self.fields, self.index = fields, index
        self.entries: dict[str, Entry] = {}
        self.unreadable: dict[str, tuple[int, str]] = {}
        self._head = codec.head(kind, api_version)

    async def add_page(self, items: Sequence[Item]) -> None:
        """Add a page in steps, after each of which everything that is runnable has its step."""
        for step in _steps(items):
            with uncollected():
                self.add(step)
            await asyncio.sleep(0)

    def add(self, items: Iterable[Item]) -> None:
        """Add objects; values that are not JSON are ignored."""
        head, fields, entries, index = self._head, self.fields, self.entries, self.index
        stored, size = head + b'"', len(head)
        for item in items:
            key, value, revision = item.key, item.value, item.revision
            entry: Entry | None = None
            if value.startswith(stored) and not is_deep(value):  # as `codec.with_revision` would, in half the time
                entry = Entry(key, revision, b"%b%d%b" % (head, revision, value[size:]), fields)
            elif item.failure:
                self.unreadable[key] = (revision, item.failure)
            else:
                entry = readable(key, value, revision, fields)
            if entry is not None:
                entries[key] = entry
                if index is not None:
                    index.put(entry)


def _steps(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Split a page into parts of at most STEP_ITEMS objects, and SLICE_BYTES unless one alone has more."""
    start = size = 0
    for at, item in enumerate(items):
        if at > start and (at - start == STEP_ITEMS or size + len(item.value) > SLICE_BYTES):
            yield items[start:at]
            start, size = at, 0
        size += len(item.value)
    if items:
        yield items[start:]


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
