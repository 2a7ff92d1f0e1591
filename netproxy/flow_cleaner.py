"""Deletes stale flows in a task of its own, so that a large table of flows delays no rule.

What is to be deleted is a set with a limit. However much it is, the flows are listed once for each IP version and protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kube.clock import Clock
from kube.loops import Loops
from netproxy import conntrack
from netproxy.conntrack import StaleFlows
from netproxy.model import ServicePort

MAX_QUEUED = 20_000
"""Deletions that are queued; past them all flows are listed and checked."""

PAUSES, MAX_PAUSE = 9, 10.0
"""Length of the pause after a deletion, in durations of that deletion, and in seconds at most."""


class FlowCleaner:
    """Deletes stale flows of an earlier process once, then those that it is given. `ports` returns the desired state."""

    def __init__(self, ports: Callable[[], Mapping[str, tuple[ServicePort, ...]]], clock: Clock) -> None:
        self._ports = ports
        self._waiting: dict[StaleFlows, None] = {}
        self._deletable: dict[StaleFlows, None] = {}
        self._sweep = True
        self._wake = asyncio.Event()
        self._clock = clock
        self.loops = Loops(clock)

    def add(self, flows: Iterable[StaleFlows]) -> None:
        """Add flows to delete once the rules that led to them are gone."""
        self._waiting.update(dict.fromkeys(flows))
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
                await conntrack.delete_leftovers(dict(self._ports()))
            flows, self._deletable = self._deletable, {}
            began = self._clock.monotonic()
            await conntrack.delete_flows(flows)
            # A list of a large table holds the interpreter's lock, which DNS and the rules need, too.
            await self._clock.sleep(min(MAX_PAUSE, PAUSES * (self._clock.monotonic() - began)))
