"""Limits how many images are pulled at a time; slots go round robin over namespaces, and no pull keeps its slot for ever.

A registry that sends a byte now and then keeps a pull going for as long as it likes, and neither CRI nor upstream limits that
(containerd ends a pull that receives nothing at all, after `image_pull_progress_timeout`). So a pull gives up its slot after
`SLOT_SECONDS` and continues without one. A namespace with `NAMESPACE` such pulls, or `REGISTRY` of one registry, begins no more
of them before one has ended: it cannot use up the others' slots one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kube.clock import Clock

SLOT_SECONDS = 60.0
NAMESPACE, REGISTRY = 8, 2
"""Limits of a namespace's pulls that continue without a slot: of all registries, and of one."""
REMEMBERED = 1024
"""Namespaces whose last slot is stored while there are pulls."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The namespace and registry of a pull."""

    namespace: str
    registry: str


class PullSlots:
    """Slots for pulls; 0 is no limit."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit, self._clock = limit, clock
        self._free = limit
        self._waiting: list[tuple[Origin, asyncio.Future[None]]] = []
        self._lent: list[Origin] = []
        self._served: dict[str, int] = {}
        """By namespace: a count of when it had a slot last."""
        self._count = 0

    @contextlib.asynccontextmanager
    async def slot(self, origin: Origin) -> AsyncIterator[None]:
        """Hold a slot, for `SLOT_SECONDS` at most."""
        if not self._limit:
            yield
            return
        await self._acquire(origin)
        lending = asyncio.create_task(self._lend(origin), name=f"place of a pull from {origin.registry}")
        try:
            yield
        finally:
            if lending.done():
                self._lent.remove(origin)
            else:
                lending.cancel()
                self._free += 1
            self._give()

    async def _acquire(self, origin: Origin) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((origin, future))
        self._give()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._free += 1
            else:
                self._waiting.remove((origin, future))
            self._give()
            raise

    async def _lend(self, origin: Origin) -> None:
        await self._clock.sleep(SLOT_SECONDS)
        self._lent.append(origin)
        self._free += 1
        self._give()

    def _give(self) -> None:
        while self._free and (able := [one for one in self._waiting if self._may_begin(one[0]) and not one[1].done()]):
            # The namespace that had a place longest ago, then the first come.
            origin, future = chosen = min(able, key=lambda one: self._served.get(one[0].namespace, 0))
            self._waiting.remove(chosen)
            self._count += 1
            self._served[origin.namespace] = self._count
            self._free -= 1
            future.set_result(None)
        if self._free == self._limit or len(self._served) > REMEMBERED:
            self._served.clear()

    def _may_begin(self, origin: Origin) -> bool:
        of_namespace = [lent for lent in self._lent if lent.namespace == origin.namespace]
        return len(of_namespace) < NAMESPACE and of_namespace.count(origin) < REGISTRY
