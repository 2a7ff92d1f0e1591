"""Scrapes nodes on demand: without requests nothing is scraped.

A node that was looked at a moment ago is not asked again; one that was looked at within the last minute is asked once, and
the time since then is the window; one that was not is asked twice, a little apart. Whoever asks regularly (an
autoscaler) so gets windows of its own period, and every server of a cluster can answer without the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from control.resource_metrics.sample import NodeSample, parse
from control.resource_metrics.usage import NodeUsage, between
from kube.clock import Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)

RESOLUTION = 10.0
"""Seconds for which a look is good enough."""
LONGEST_WINDOW = 60.0
"""Seconds after which a look is too old to measure from."""
FIRST_WINDOW = 1.5
"""Seconds between the two scrapes of a node that was not scraped recently; agents update their counters each second."""
SCRAPE_SECONDS = 5.0
AT_ONCE = 16
FORGET_SECONDS = 600.0

Fetch = Callable[[str], Awaitable[str]]
"""Returns the text of a node's /metrics/resource; raises StatusError or OSError."""


class _Known(msgspec.Struct):
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    older: NodeSample | None = None
    newer: NodeSample | None = None
    looked_at: float = float("-inf")
    failed_at: float = float("-inf")


class Scraper:
    """The last two scrapes of each requested node."""

    def __init__(self, fetch: Fetch, clock: Clock) -> None:
        self._fetch, self._clock = fetch, clock
        self._nodes: dict[str, _Known] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def usage(self, nodes: Iterable[str]) -> dict[str, NodeUsage]:
        """Return what the nodes use; nodes that do not answer are left out."""
        self._forget()
        names = list(nodes)
        found = await asyncio.gather(*(self._usage(name) for name in names))
        return {name: usage for name, usage in zip(names, found, strict=True) if usage is not None}

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - FORGET_SECONDS
        for name in [
            n for n, k in self._nodes.items() if max(k.looked_at, k.failed_at) < oldest and not k.lock.locked()
        ]:
            del self._nodes[name]

    async def _usage(self, name: str) -> NodeUsage | None:
        known = self._nodes.setdefault(name, _Known())
        async with known.lock:
            now = self._clock.monotonic()
            if now - known.failed_at < RESOLUTION:
                return None
            if now - known.looked_at > RESOLUTION:
                if now - known.looked_at > LONGEST_WINDOW:
                    known.older = known.newer = None
                try:
                    await self._scrape_node(name, known)
                    if known.older is None:
                        await self._clock.sleep(FIRST_WINDOW)
                        await self._scrape_node(name, known)
                except (StatusError, OSError) as error:
                    known.failed_at = self._clock.monotonic()
                    log.info("node %s was not scraped: %s", name, error)
                    return None
            return between(known.older, known.newer)

    async def _scrape_node(self, name: str, known: _Known) -> None:
        async with self._room, asyncio.timeout(SCRAPE_SECONDS):
            text = await self._fetch(name)
        sample = await parse(text, self._clock.now().timestamp())
        known.looked_at = self._clock.monotonic()
        if known.newer is not None and sample.node is not None and known.newer.node is not None:
            if sample.node.time == known.newer.node.time:
                return  # the agent has not looked again itself
            if sample.node.time < known.newer.node.time:
                known.newer = None  # the node's clock was set back: nothing can be measured from there
        known.older, known.newer = known.newer, sample
