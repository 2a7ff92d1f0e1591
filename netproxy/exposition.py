"""Answers /metrics from a text that is made once a second at most.

Anybody on the machine may scrape: the metrics port needs no credentials. In the iptables mode some values are read by programs,
and the text takes 3 ms of CPU time. So however many scrapes there are, one of them has it made, and the others share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from kube.clock import SYSTEM, Clock
from kube.exposition import CONTENT_TYPE
from netproxy import metrics

Update = Callable[[], Awaitable[None]]
FRESH = 1.0
"""Seconds that a text is served."""


class Exposition:
    """All metrics in Prometheus' text format. `updates` bring some up to date before a text is made."""

    def __init__(self, updates: Iterable[Update] = (), clock: Clock = SYSTEM) -> None:
        self._updates, self._clock = tuple(updates), clock
        self._lock = asyncio.Lock()
        self._last: tuple[float, bytes] | None = None

    async def handle(self, _: web.Request) -> web.Response:
        """Answer a scrape."""
        return web.Response(body=await self.text(), headers={"Content-Type": CONTENT_TYPE})

    async def text(self) -> bytes:
        """Return a text of the last second."""
        async with self._lock:
            if self._last is None or self._clock.monotonic() - self._last[0] >= FRESH:
                for update in self._updates:
                    await update()
                self._last = self._clock.monotonic(), metrics.exposition()
            return self._last[1]
