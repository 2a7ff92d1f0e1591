"""Faults of the watch cache, of watches, lists and reads, and of writes to the store."""

from __future__ import annotations

from simulation.changed_imports import Mutant

CACHE, RESOURCE, RECENT = "control.storage.cache", "control.storage.resource_cache", "control.storage.recent_changes"
WATCHER, LISTING, REPLAY = "control.storage.watcher", "control.storage.listing", "control.storage.replay"
SWAP, OUTCOME = "control.registry.compare_and_swap", "control.registry.outcome"

STORAGE = (
    Mutant(
        "the-watch-cache-loses-changes",
        RESOURCE,
        "        if event.revision <= self.recent.floor:\n",
        "        if event.revision <= self.recent.floor or event.revision % 40 == 0:\n",
    ),
    Mutant(
        "changes-between-list-and-watch-are-lost",
        CACHE,
        "self.store.watch(ROOT, self.revision)",
        "self.store.watch(ROOT, self.revision + 1)",
    ),
    Mutant(
        "watch-events-are-sent-twice",
        RESOURCE,
        "            for watcher in tuple(folder.plain):\n",
        "            for watcher in tuple(folder.plain) * 2:\n",
    ),
    Mutant(
        "resumed-watches-miss-a-change",
        RECENT,
        "if change.revision > revision and",
        "if change.revision > revision + 1 and",
    ),
    Mutant(
        "resumed-watches-repeat-a-change",
        RECENT,
        "if change.revision > revision and",
        "if change.revision >= revision and",
    ),
    Mutant("recent-changes-have-no-floor", RECENT, "self.floor = change.revision", "pass"),
    Mutant(
        "replayed-watches-miss-the-last-change", REPLAY, "if event.revision > until or", "if event.revision >= until or"
    ),
    Mutant(
        "objects-that-stop-matching-stay",
        WATCHER,
        "        if before:\n",
        "        if before and self.entry is None:\n",
    ),
    Mutant(
        "objects-that-start-to-match-are-modified",
        WATCHER,
        'WatchEvent("ADDED", self.entry)',
        'WatchEvent("MODIFIED", self.entry)',
    ),
    Mutant(
        "bookmarks-are-early", RESOURCE, "self._marked = self.bookmark(now)", "self._marked = self.bookmark(now + 1)"
    ),
    Mutant(
        "reads-do-not-wait-for-the-store",
        CACHE,
        "        if self.revision < revision or not self._ready.is_set():  # else there is nothing to wait for\n",
        "        if not self._ready.is_set():\n",
    ),
    Mutant("pages-are-of-different-revisions", LISTING, "if revision == LATEST:", "if revision:"),
    Mutant(
        "pages-overlap",
        RESOURCE,
        "low = max(low, bisect_right(self._keys, start_after))",
        "low = max(low, bisect_left(self._keys, start_after))",
    ),
    Mutant("too-many-objects-remain", RESOURCE, "max(0, high - end)", "max(0, high - end + 1)"),
    Mutant(
        "lists-are-cached-too-long",
        RESOURCE,
        "        self.unreadable.pop(key, None)\n        self._end_list()\n",
        "        self.unreadable.pop(key, None)\n",
    ),
    Mutant(
        "updates-overwrite-newer-states",
        SWAP,
        "item = await registry.store.update(entry.key, stored, entry.revision, strategy.ttl)",
        "now = await registry.store.get(entry.key)\n"
        "        item = await registry.store.update(entry.key, stored, now.revision if now else 0, strategy.ttl)",
    ),
    Mutant(
        "deletions-ignore-the-revision",
        OUTCOME,
        "return await registry.store.delete(entry.key, entry.revision)",
        "return await registry.store.delete(entry.key)",
    ),
    Mutant(
        "writes-of-unknown-outcome-are-repeated",
        SWAP,
        "if current or isinstance(error, OutcomeUnknown):",
        "if current and not isinstance(error, OutcomeUnknown):",
    ),
    Mutant(
        "old-states-are-taken-for-new",
        OUTCOME,
        "if await registry.store.current_revision() <= registry.cache.revision:",
        "if registry.cache.revision:",
    ),
)
