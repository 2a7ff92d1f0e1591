"""Watchers of a folder with equal selectors, which are evaluated once for all of them, and the owner of such groups."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Hashable

from control.storage.selector import Selector
from control.storage.store import Unreadable
from control.storage.watcher import QUEUE, QUEUE_BYTES, Change, Watcher, WatchEvent

log = logging.getLogger(__name__)


class Account:
    """The evaluations for one owner of watches."""

    __slots__ = ("__weakref__", "late", "owner", "queue", "spent", "task")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.spent = 0.0
        """Seconds that have not been charged yet."""
        self.late = False
        """True if the owner has used its share: nothing is evaluated at once."""
        self.queue = deque[Group]()
        """Groups with changes that wait for evaluation by `task`."""
        self.task: asyncio.Task[None] | None = None


class Group:
    """Watchers of one folder and owner with equal selectors."""

    __slots__ = ("_size", "account", "key", "limit", "pending", "queued", "selector", "watchers")

    def __init__(self, key: Hashable, selector: Selector, account: Account, limit: int = QUEUE) -> None:
        self.key, self.selector, self.account, self.limit = key, selector, account, limit
        self.watchers: dict[Watcher, None] = {}
        self.pending = deque[Change | WatchEvent]()
        """Changes that have not been evaluated yet, and the bookmarks after them, in order."""
        self._size = 0
        self.queued = False
        """True if the account's queue has the group."""

    def evaluate(self, change: Change) -> WatchEvent | None:
        """Return the event for the watchers; close them and return None if the selector fails for the object."""
        try:
            return self.selector.event_for(change)
        except Exception:
            # One object must not end the cache, which serves all others.
            log.exception("a watch ends: its selector cannot be evaluated for %s", change.key)
            self.close(Unreadable(change.key, "a selector cannot be evaluated for it"))
            return None

    def push(self, watch_event: WatchEvent, revision: int) -> None:
        """Queue the event of a revision for the watchers that have not seen it at their start."""
        for watcher in tuple(self.watchers):
            if revision > watcher.since:
                watcher.push(watch_event)

    def bookmark(self, watch_event: WatchEvent) -> None:
        """Queue a bookmark for the watchers that requested them, behind the changes that wait."""
        if self.pending:
            self.defer(watch_event)
        else:
            self._push_bookmark(watch_event)

    def _push_bookmark(self, watch_event: WatchEvent) -> None:
        for watcher in tuple(self.watchers):
            if watcher.bookmarks and watch_event.entry.revision >= watcher.since:
                watcher.push(watch_event)

    def defer(self, item: Change | WatchEvent) -> None:
        """Let a change or a bookmark wait; drop the watchers if too many do."""
        self.pending.append(item)
        self._size += item.size
        if len(self.pending) > self.limit or (self._size > QUEUE_BYTES and len(self.pending) > 1):
            self.drop()

    def evaluate_next(self) -> None:
        """Evaluate the first change that waits, or deliver the bookmark."""
        item = self.pending.popleft()
        self._size -= item.size
        if isinstance(item, WatchEvent):
            self._push_bookmark(item)
        elif (watch_event := self.evaluate(item)) is not None:
            self.push(watch_event, item.revision)

    def close(self, failure: Exception) -> None:
        """End the watches with a failure."""
        for watcher in tuple(self.watchers):
            watcher.close(failure)

    def drop(self) -> None:
        """End the watches because too much waits; their clients resume."""
        for watcher in tuple(self.watchers):
            watcher.drop()

    def remove(self, watcher: Watcher) -> None:
        """Remove a watcher; without any nothing waits."""
        self.watchers.pop(watcher, None)
        if not self.watchers:
            self.pending.clear()
            self._size = 0
