"""Leaves the ports of load balancers at the node's own addresses to the programs that listen on them (listeners.py).

A port that has not been looked up yet counts as in use, so that no program loses it for a moment: its Service is served as soon
as the answer is there. The proxy waits `LIMIT` seconds for it at most, and not again until it is there; what is known of other
ports stays as it is, so a kernel that answers slowly, or not at all, changes nothing for the Services that are served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from kube.clock import Clock
from netproxy.balancer_ports import PortInUse
from netproxy.listeners import Socket
from netproxy.service_table import ServiceTable

log = logging.getLogger(__name__)
Find = Callable[[Collection[Socket]], Awaitable[frozenset[Socket]]]
LIMIT = 1.0
"""Seconds that a lookup may delay changes of Services."""
PORTION = 2048
"""Ports that are looked up at once: their results take the event loop some 5 ms."""
PAUSES = 20
"""Length of the pause after a check of all ports, in durations of that check."""


class PortChecks:
    """Looks up which ports are in use. `report` is called for each that was not before."""

    def __init__(
        self,
        table: ServiceTable,
        find: Find,
        clock: Clock,
        report: Callable[[PortInUse], None],
        ended_late: Callable[[], None],
    ) -> None:
        """`ended_late` is called when the result of a lookup is there that nothing waits for any more."""
        self._table, self._find, self._clock = table, find, clock
        self._report, self._ended_late = report, ended_late
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._late = False
        self._next = 0.0
        self._failed = False

    async def check_new(self) -> None:
        """Look up the ports that were never looked up."""
        await self._check(lambda: self._table.balancer_ports.unknown)

    async def check_all(self) -> None:
        """Look up all ports, unless that takes long and was done a short time ago."""
        if self._clock.monotonic() >= self._next:
            await self._check(lambda: self._table.balancer_ports.sockets)

    async def _check(self, wanted: Callable[[], Collection[Socket]]) -> None:
        if not wanted() or (self._task is not None and not self._lock.locked()):
            return  # none, or an earlier lookup takes longer than the limit
        async with self._lock:
            sockets = tuple(wanted())
            if self._task is not None or not sockets:
                return
            self._task = asyncio.create_task(self._look_up(sockets), name="lookup of ports in use")
            self._task.add_done_callback(self._ended)
            _, late = await asyncio.wait({self._task}, timeout=LIMIT)
            if late:
                self._late = True
                log.warning("the kernel takes long to find the ports that programs listen on")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        late, self._late = self._late, False
        if task.cancelled():
            return
        if error := task.exception():
            log.error("the lookup of ports that programs listen on failed", exc_info=error)
        if late:
            self._ended_late()

    async def _look_up(self, sockets: Sequence[Socket]) -> None:
        began = self._clock.monotonic()
        try:
            for start in range(0, len(sockets), PORTION):
                portion = frozenset(sockets[start : start + PORTION])
                for each in self._table.set_in_use(portion, await self._find(portion)):
                    self._report(each)
        except OSError as error:
            if not self._failed:
                log.warning("ports that programs of this node listen on cannot be read: %s", error)
            self._failed = True
            return
        finally:
            now = self._clock.monotonic()
            self._next = now + PAUSES * (now - began)
        self._failed = False
