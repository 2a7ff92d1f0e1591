"""Time of a cluster that is the machine's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from kube.clock import SYSTEM, Clock
from wherry.testing.errors import ClusterError

if TYPE_CHECKING:
    from control.assembly.api_server import ApiServer

LOOK_SECONDS = 0.01
"""Time between two looks at an object that is waited for."""


class RealTime:
    """The machine's time: it passes by itself."""

    timeout = 30.0
    """Seconds that a wait takes at most, unless it has a limit of its own."""

    def __init__(self) -> None:
        self.clock: Clock = SYSTEM

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Nothing is observed."""
        yield

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Time passes by itself."""
        yield

    def observe(self, api: ApiServer) -> None:
        """Nothing is observed."""

    async def rest(self) -> None:
        """Time does not stand."""

    def revision(self) -> int:
        """Return the state that `changed` compares with; there is none."""
        return 0

    async def changed(self, since: int, end: float) -> bool:
        """Wait until objects may have changed; False if that is after `end` (as the clock's `monotonic`)."""
        if self.clock.monotonic() >= end:
            return False
        await asyncio.sleep(LOOK_SECONDS)
        return True

    async def advance(self, seconds: float) -> None:
        """Raise ClusterError."""
        raise ClusterError('the time of this cluster is real: use Cluster(time="virtual") to move it')

    async def settle(self, quiet: float, most: float) -> None:
        """Raise ClusterError."""
        await self.advance(0)

    @contextlib.asynccontextmanager
    async def passing(self, speed: float) -> AsyncIterator[None]:
        """Raise ClusterError."""
        await self.advance(0)
        yield
