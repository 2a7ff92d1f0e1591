"""Wakes a pod's worker: at once for whatever may matter, or at a given time."""

from __future__ import annotations

import asyncio

from kube.clock import Clock


class WakeUp:
    """An event with one timer. Times are seconds of the monotonic clock."""

    def __init__(self, clock: Clock, uid: str) -> None:
        self._clock, self._uid = clock, uid
        self._event = asyncio.Event()
        self._event.set()
        self._timer: tuple[float, asyncio.Task[None]] | None = None
        self.sync_requested = True
        """Something may have changed since the pod was last planned."""

    async def wait(self) -> None:
        """Return once the worker is woken."""
        await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """Wake the worker without requesting a sync."""
        self._event.set()

    def request_sync(self) -> None:
        """Have the pod planned again."""
        self.sync_requested = True
        self._event.set()

    def request_sync_at(self, at: float | None) -> None:
        """Request a sync at this time at the latest; an earlier request stands."""
        if at is None or (self._timer is not None and self._timer[0] <= at):
            return
        self.cancel_timer()
        self._timer = (at, asyncio.create_task(self._sleep_until(at), name=f"timer of pod {self._uid}"))

    async def _sleep_until(self, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._clock.monotonic()))
        self._timer = None
        self.request_sync()

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
