"""Deletes stale flows beside the proxy's loop, so that a slow or hung `conntrack` delays no rule.

What is to be deleted is a set, so the same flows are never waited for twice, and its size has a bound. A few deletions run at
a time. Where there are many (a thousand endpoints went), the flows are listed once and only what matches one is deleted: a
deletion costs a process and goes through all flows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kube.clock import Clock
from kube.loops import Loops
from netproxy import conntrack
from netproxy.model import ServicePort

MAX_UNLISTED = 16
"""Deletions that are made without listing the flows."""
CONCURRENT = 4
"""Deletions under way at once."""
MAX_QUEUED = 20_000
"""Deletions that are queued; past them all flows are listed and checked."""

Arguments = tuple[str, ...]


class FlowCleaner:
    """Deletes stale flows of an earlier process once, then those that it is given. `ports` returns the desired state."""

    def __init__(self, ports: Callable[[], Mapping[str, tuple[ServicePort, ...]]], clock: Clock) -> None:
        self._ports = ports
        self._waiting: dict[Arguments, None] = {}
        self._deletable: dict[Arguments, None] = {}
        self._sweep = True
        self._wake = asyncio.Event()
        self.loops = Loops(clock)

    def add(self, flows: Iterable[list[str]]) -> None:
        """Add flows to delete once the rules that led to them are gone, each as arguments of `conntrack -D`."""
        self._waiting.update(dict.fromkeys(map(tuple, flows)))
        if len(self._waiting) + len(self._deletable) > MAX_QUEUED:
            self._waiting, self._deletable, self._sweep = {}, {}, True

    def rules_written(self) -> None:
        """Start the deletion of all added flows: the rules are written."""
        self._deletable |= self._waiting
        self._waiting = {}
        if self._deletable or self._sweep:
            self._wake.set()

    async def run(self) -> None:
        """Delete until cancelled."""
        await self.loops.run("deletion of stale flows", self._work)

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._sweep:
                self._sweep = False  # not again where it fails: what is new is deleted all the same
                await conntrack.delete_leftovers(dict(self._ports()), CONCURRENT)
            flows, self._deletable = [list(each) for each in self._deletable], {}
            if len(flows) > MAX_UNLISTED:
                flows = await conntrack.existing(flows)
            await conntrack.delete_flows(flows, CONCURRENT)
