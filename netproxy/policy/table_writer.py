"""Writes the table of policies to the kernel, for each family, after it has changed.

A write waits some iterations of the event loop for changes that are being processed, and is retried until all families have
succeeded. Whoever needs a change in force before it continues waits here, for a limited time: a family may fail for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Sequence

from kube.clock import Clock
from netproxy import metrics
from netproxy.errors import WriteError
from netproxy.policy.failures import Failures
from netproxy.policy.family_writer import RETRY, FamilyWriter
from netproxy.policy.policy_loader import PolicyLoader
from netproxy.policy.table import PolicyTable
from netproxy.policy.work_queue import WorkQueue

log = logging.getLogger(__name__)
MAX_GATHER_ITERATIONS = 20
"""Maximum of iterations of the event loop for which a write waits for changes that are being processed."""
MAX_GATHER_JOBS = 20
"""Maximum of changes for which a write waits while a namespace's policies select too many pods: somebody may keep it so."""
MAX_WAIT = 10.0
"""Seconds for which new addresses, and flows of former ones, wait for a write: a family may fail for good."""


class TableWriter:
    """Keeps the tables of all families equal to a table of policies. `changes` is the queue that changes it."""

    def __init__(
        self,
        table: PolicyTable,
        families: Sequence[FamilyWriter],
        loader: PolicyLoader,
        failures: Failures,
        changes: WorkQueue,
        clock: Clock,
    ) -> None:
        self._table, self._families, self._loader = table, families, loader
        self._failures, self._changes, self._clock = failures, changes, clock
        self._wake = asyncio.Event()
        self._unwritten: list[asyncio.Event] = []
        """Set once the table that was last stored is in force."""
        self._writing = False
        """True if the kernel may have an older table than the last one before `_wake` was cleared."""
        self._ranges_known = asyncio.Event()
        self.started = asyncio.Event()
        """Set once the policies there were at the start are in force, or it is known that there is none."""
        self.wake = self._wake.set
        """Has the table written: it has changed."""

    def set_node_ranges(self, cidrs: Sequence[str]) -> None:
        """Set the ranges of addresses of this node's pods; nothing is written before they are known."""
        for family in self._families:
            family.set_node_ranges(cidrs)
        self._ranges_known.set()
        self.wake()

    # -- waiting for a write --------------------------------------------------------------------------------------
    @property
    def pending(self) -> bool:
        """True if the kernel may not have what the table holds now."""
        return self._writing or self._wake.is_set()

    def set_when_written(self, in_force: asyncio.Event) -> None:
        """Have the table written, and set an event then."""
        self._unwritten.append(in_force)
        self.wake()

    async def wait_written(self) -> None:
        """Wait until what the table holds now is in force, or cannot be put in force in time."""
        in_force = asyncio.Event()
        self.set_when_written(in_force)
        await self.wait_in_force(in_force)

    async def wait_in_force(self, in_force: asyncio.Event) -> None:
        """Wait for an event of `set_when_written`, at most MAX_WAIT seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT):
                await in_force.wait()
        in_force.set()  # nobody waits any more

    def release(self) -> None:
        """Set all events: there is no policy any more."""
        _set(self._unwritten)
        self._unwritten = []

    # -- writing --------------------------------------------------------------------------------------------------
    async def run_without_policies(self, seconds: float = math.inf) -> bool:
        """Remove the tables, and wait so long for a policy; return whether there is one."""
        end = self._clock.monotonic() + seconds
        for family in self._families:
            await family.remove()
        self.started.set()
        self.release()
        while not self._table.policies:
            self._wake.clear()
            left = end - self._clock.monotonic()
            if left <= 0:
                return False
            await self._wait_wake(left)
        return True

    async def _wait_wake(self, seconds: float) -> None:
        """Wait until the table changes, at most so long."""
        if seconds == math.inf:
            await self._wake.wait()
            return
        waiting = [asyncio.ensure_future(each) for each in (self._wake.wait(), self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def run(self) -> None:
        """Write the table after each change, until it has no policy."""
        await self._ranges_known.wait()
        while self._table.policies:
            self._wake.clear()
            self._writing, began = True, self._clock.monotonic()
            self._loader.limit_node()
            self._failures.report()
            waiting, self._unwritten = self._unwritten, []
            done = False
            try:
                done = all([await family.write() for family in self._families])
            finally:
                if not done:  # also where this is cancelled
                    self._unwritten += [each for each in waiting if not each.is_set()]
                    self.wake()
                self._writing = False
            if done:
                metrics.POLICY_SYNC.observe(self._clock.monotonic() - began)
                self.started.set()
                _set(waiting)
            else:
                await self._clock.sleep(RETRY)
            await self._wake.wait()
            # Some iterations later all events of the same read are in: they make one change.
            done_before = self._changes.done
            for count in itertools.count(1):
                await asyncio.sleep(0)
                # Policies that select too many pods are being closed, which may take longer.
                excessive = self._table.selections.counts.excessive()
                if self._changes.done - done_before >= MAX_GATHER_JOBS:
                    break
                if not self._changes.busy or (count >= MAX_GATHER_ITERATIONS and not excessive):
                    break

    async def verify(self) -> bool:
        """Repair changes of our tables by others; return whether there were any."""
        repaired = False
        for family in self._families:
            if family.reopen():
                self.wake()
        for family in self._families:
            try:
                repaired = await family.backend.verify() or repaired
            except WriteError as error:
                log.error("network policies cannot be repaired yet: %s", error)
        return repaired


def _set(events: Sequence[asyncio.Event]) -> None:
    for each in events:
        each.set()
