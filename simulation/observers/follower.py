"""Follows one scope on one member of the control plane, in all ways in which clients do.

It begins with a list (whole, in pages, of the cache, of an earlier revision) or with a watch that sends the objects first, and
resumes where a watch ended, sometimes where it had been before.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from kube.client import Client, lines
from kube.errors import StatusError
from simulation.oracles.true_history import Scope, TrueHistory
from simulation.oracles.watches import Broken, ListCheck, WatchCheck, revision_of

Object = dict[str, Any]
Report = Callable[[Iterable[Broken]], None]
PAGE = 5
WATCH_SECONDS = (5, 300)
"""Shortest and longest time of a watch."""
REPEATED = 0.2
"""Probability that a watch begins at a revision that the follower had before."""


class Follower:
    """One scope; `counts` is what has been checked."""

    def __init__(
        self,
        client: Client,
        scope: Scope,
        history: TrueHistory,
        rng: random.Random,
        report: Report,
        counts: Counter[str],
        record: Callable[[bytes], None],
    ) -> None:
        """`record` is called with each line of a watch."""
        self._client, self._scope, self._history, self._rng = client, scope, history, rng
        self._report, self._counts, self._record = report, counts, record
        self._check: WatchCheck | None = None
        self._former: deque[int] = deque(maxlen=8)
        """Revisions up to which everything was received at some time."""

    async def run(self) -> None:
        """Follow until the process ends."""
        while True:
            try:
                if self._check is None or not self._check.checkable:
                    await self._begin()
                else:
                    await self._resume(self._check.position)
            except StatusError as error:
                if error.code == 410:
                    self._check = None
                    self._counts["expired"] += 1
            await asyncio.sleep(self._rng.uniform(0.01, 2.0))

    def overdue(self) -> list[Broken]:
        """Return what was never received. To be called when nothing has changed for minutes."""
        return self._check.overdue() if self._check is not None and self._check.checkable else []

    # -- lists --------------------------------------------------------------------------------------------------------
    async def _begin(self) -> None:
        kind = self._rng.choice(("whole", "pages", "pages", "cache", "exact", "stream", "stream"))
        if kind == "stream":
            await self._stream()
            return
        revision = 0
        if kind == "exact":
            revision = self._rng.choice(self._former) if self._former else 0
        self._check = WatchCheck(self._history, self._scope, await self._list(kind, revision))

    async def _list(self, kind: str, exact: int) -> int:
        """List the scope and return the revision."""
        query = dict(self._scope.query)
        if kind == "cache":
            query["resourceVersion"] = "0"
        if kind == "pages":
            query["limit"] = str(PAGE)
        if exact:
            query |= {"resourceVersion": str(exact), "resourceVersionMatch": "Exact"}
        recent = kind != "cache" and not exact
        check = ListCheck(self._history, self._scope, self._history.revision, exact=exact, recent=recent)
        token = ""
        while True:
            asked = query | ({"continue": token} if token else {})
            found = json.loads(await self._client.call("GET", self._scope.path, query=asked))
            meta = found["metadata"]
            token = meta.get("continue") or ""
            remaining = meta.get("remainingItemCount")
            self._report(check.page(int(meta["resourceVersion"]), found["items"] or [], remaining, last=not token))
            if not token:
                self._counts["lists"] += 1
                return check.revision
            await asyncio.sleep(self._rng.choice((0.0, 0.1, 5.0)))

    async def _stream(self) -> None:
        """Watch with the present objects first: they are a list of the revision of the bookmark that ends them."""
        check = ListCheck(self._history, self._scope, self._history.revision)
        options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        items: list[Object] = []
        self._check = None
        async for kind, obj in self._events(options):
            if check.revision:
                self._received(kind, obj)
            elif kind == "BOOKMARK" and "k8s.io/initial-events-end" in (obj["metadata"].get("annotations") or {}):
                revision = revision_of(obj)
                self._report(check.page(revision, items, None, last=True))
                self._counts["streamed lists"] += 1
                self._check = WatchCheck(self._history, self._scope, revision)
            elif kind == "ADDED":
                items.append(obj)
            elif kind != "BOOKMARK":
                self._report([("list", f"{self._scope}: {kind} is one of the initial events")])

    # -- watches ------------------------------------------------------------------------------------------------------
    async def _resume(self, position: int) -> None:
        self._former.append(position)
        if self._rng.random() < REPEATED:
            position = self._rng.choice(self._former)
        if position < self._history.floor:
            return
        self._check = WatchCheck(self._history, self._scope, position)
        async for kind, obj in self._events({"resourceVersion": str(position)}):
            self._received(kind, obj)

    def _received(self, kind: str, obj: Object) -> None:
        check = self._check
        assert check is not None
        if not check.checkable:
            raise StatusError(410, "Expired", "the true history has been dropped")
        if kind == "BOOKMARK":
            self._counts["bookmarks"] += 1
            self._report(check.bookmark(revision_of(obj)))
        else:
            self._counts["events"] += 1
            self._report(check.event(kind, obj))

    async def _events(self, options: dict[str, str]) -> AsyncIterator[tuple[str, Object]]:
        """Watch the scope; raise StatusError for an error that the server sends."""
        timeout = str(self._rng.randint(*WATCH_SECONDS))
        query = {
            **self._scope.query,
            **options,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": timeout,
        }
        self._counts["watches"] += 1
        async with self._client.transport.stream(self._scope.path, query=query) as chunks:
            async for line in lines(chunks):
                self._record(line)
                found = json.loads(line)
                if found["type"] == "ERROR":
                    raise StatusError.from_status(found["object"])
                yield found["type"], found["object"]
