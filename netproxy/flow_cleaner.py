"""Deletes stale flows beside the proxy's loop, so that a slow or hung `conntrack` holds up no rule.

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

FEW = 16
"""Deletions that are made without a look at what there is."""
TOGETHER = 4
"""Deletions under way at once."""
MOST = 20_000
"""Deletions that are remembered; past them everything is swept."""

Arguments = tuple[str, ...]


class FlowCleaner:
    """Sweeps once what an earlier life left, then deletes what it is given. `ports` returns the desired state."""

    def __init__(self, ports: Callable[[], Mapping[str, tuple[ServicePort, ...]]], clock: Clock) -> None:
        self._ports = ports
        self._held: dict[Arguments, None] = {}
        self._due: dict[Arguments, None] = {}
        self._sweep = True
        self._wake = asyncio.Event()
        self.loops = Loops(clock)

    def hold(self, flows: Iterable[list[str]]) -> None:
        """Take in flows to delete when the rules that led to them are gone, each as arguments of `conntrack -D`."""
        self._held.update(dict.fromkeys(map(tuple, flows)))
        if len(self._held) + len(self._due) > MOST:
            self._held, self._due, self._sweep = {}, {}, True

    def release(self) -> None:
        """Have deleted what was taken in: the rules are written."""
        self._due |= self._held
        self._held = {}
        if self._due or self._sweep:
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
                await conntrack.sweep(dict(self._ports()), TOGETHER)
            flows, self._due = [list(each) for each in self._due], {}
            if len(flows) > FEW:
                flows = await conntrack.present(flows)
            await conntrack.delete_flows(flows, TOGETHER)
