"""Moves a cluster's virtual clock: from one sleeper to the next, each time when all that the last one caused is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from wherry.testing.errors import ClusterError
from wherry.testing.timing.clock import VirtualClock
from wherry.testing.timing.idle import IdleDetector

if TYPE_CHECKING:
    from control.assembly.api_server import ApiServer

HEARTBEATS = ("/registry/leases/",)
"""Folders of objects that change for ever."""
START_SECONDS = 10.0
"""Virtual time that a start takes, before the beginning."""
SHORT_SECONDS = 1.0
FLOW_SECONDS = 0.001
"""Real time between two moves of the clock while the cluster starts."""
REACTION_SECONDS = 0.05
"""Real time without a request after which clients on sockets are taken to have reacted to events and responses."""
PASSING_SECONDS = 0.02
"""Real time between two moves of the clock while time passes."""


class VirtualTime:
    """The time of one cluster, on the running event loop."""

    timeout = 3600.0
    """Seconds that a wait takes at most, unless it has a limit of its own."""

    def __init__(self, start: datetime, reaction: float) -> None:
        self._reaction = reaction
        self.clock = VirtualClock(start - timedelta(seconds=START_SECONDS))
        self._idle = IdleDetector(asyncio.get_running_loop())
        self._moving = asyncio.Lock()
        self._revision: Callable[[], int] = lambda: 0
        self._settled: Callable[[], int] = lambda: 0
        self._exchanged: Callable[[], int] = lambda: 0
        self._seen = 0
        """Requests and events of clients on sockets that they have had time to react to."""

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Observe the event loop while the block runs."""
        with self._idle.installed():
            yield

    def observe(self, api: ApiServer) -> None:
        """Move the clock only while the server is not busy, and observe its objects."""
        self._idle.busy, self._revision = api.busy, lambda: api.cache.revision
        self._settled = lambda: max(each.changed for each in api.registry.caches() if each.prefix not in HEARTBEATS)
        self._exchanged = api.exchanged

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Let short sleeps pass while the block runs, when the loop is idle, and move to the beginning of time at its end.

        A start retries what is not ready yet.
        """

        async def flow() -> None:
            while True:
                await self._idle.wait()
                await self._step(self.clock.monotonic() + SHORT_SECONDS)
                await asyncio.sleep(FLOW_SECONDS)

        task = asyncio.create_task(flow(), name="flow of virtual time")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.advance(max(0.0, START_SECONDS - self.clock.monotonic()))

    async def advance(self, seconds: float) -> None:
        """Let so much time pass; what happens at its end is done when this returns."""
        if seconds < 0:
            raise ClusterError(f"time cannot go back by {-seconds:g} s")
        end = self.clock.monotonic() + seconds
        await self._wait_idle()
        while await self._step(end):
            pass
        self.clock.move(end)
        await self.rest()

    async def settle(self, quiet: float, most: float) -> None:
        """Let time pass until no object has changed for `quiet` seconds. Raise ClusterError after `most` seconds."""
        end = self.clock.monotonic() + most
        await self._wait_idle()
        until = self.clock.monotonic() + quiet
        while await self._until_changed(self._settled, self._settled(), until):
            if self.clock.monotonic() > end:
                raise ClusterError(f"objects still change after {most:g} s of virtual time")
            until = self.clock.monotonic() + quiet
        self.clock.move(until)
        await self.rest()

    @contextlib.asynccontextmanager
    async def passing(self, speed: float) -> AsyncIterator[None]:
        """Let time pass while the block runs, `speed` times as fast as real time at most."""

        async def move() -> None:
            while True:
                await asyncio.sleep(PASSING_SECONDS)
                await self.advance(PASSING_SECONDS * speed)

        task = asyncio.create_task(move(), name="virtual time passes")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def revision(self) -> int:
        """Return the state that `changed` compares with."""
        return self._revision()

    async def changed(self, since: int, end: float) -> bool:
        """Let time pass until objects have changed since a `revision`; False if none has until `end`."""
        await self._wait_idle()
        return await self._until_changed(self._revision, since, end)

    async def rest(self) -> None:
        """Do what was deferred, and wait until all work is done: time stands from now on."""
        await self._wait_idle()
        self.clock.wake_deferred()
        await self._wait_idle()

    async def _until_changed(self, revision: Callable[[], int], since: int, end: float) -> bool:
        while revision() == since:
            if not await self._step(end):
                return False
        return True

    async def _step(self, end: float) -> bool:
        """Move an idle cluster to its next sleeper, and wait until it is idle again; False if there is none until `end`."""
        async with self._moving:
            following = self.clock.next_at()
            if following is None or following > end:
                return False
            self.clock.move(following)
            await self._wait_idle()
            return True

    async def _wait_idle(self) -> None:
        """Wait until all work is done, also that of clients on sockets, which react to events a moment later."""
        await self._idle.wait()
        while self._exchanged() != self._seen:
            self._seen = self._exchanged()
            await self._idle.wait(self._reaction)
