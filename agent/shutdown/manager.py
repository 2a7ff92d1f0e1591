"""Terminates pods group by group when logind announces the machine's shutdown, then lets the shutdown continue.

Meanwhile the node is not ready and admits no pod. Pods end as Failed with reason Terminated, so that their controllers create
others elsewhere. A shutdown that was cancelled makes the node ready again; terminated pods stay terminated. Shutdowns are
followed also while logind gives no lock: pods then end as far as the machine lets them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from agent.config import ShutdownPeriod
from agent.lifecycle import End
from agent.node.state import NodeState
from agent.pods.manager import PodManager
from agent.shutdown.logind import Logind, LogindError
from agent.shutdown.periods import grace, grouped
from agent.shutdown.state import FILE, save
from kube.api import core_v1
from kube.clock import Clock, format_time
from kube.events import NORMAL, EventRecorder

log = logging.getLogger(__name__)

MESSAGE = "Pod was terminated in response to imminent node shutdown."
END = End("Failed", "Terminated", MESSAGE, disruption=MESSAGE)
RECONNECT_SECONDS = 1.0


class Shutdown:
    """Follows logind and ends pods before the machine does; `ended_at` and `began_at` are of the last time."""

    def __init__(
        self,
        periods: Iterable[ShutdownPeriod],
        pods: PodManager,
        state: NodeState,
        recorder: EventRecorder,
        connect: Callable[[], Awaitable[Logind]],
        *,
        node_name: str,
        folder: Path,
        clock: Clock,
    ) -> None:
        self._periods = sorted(periods, key=lambda period: period.priority)
        self._pods, self._state, self._recorder = pods, state, recorder
        self._connect, self._node_name, self._file, self._clock = connect, node_name, folder / FILE, clock
        self._logged = ""

    async def run(self) -> None:
        """Follow logind until cancelled; a lost connection is dialled again after a second."""
        while True:
            try:
                await self._follow()
                self._logged = ""
            except LogindError as error:
                self._warn(error)
            await self._clock.sleep(RECONNECT_SECONDS)

    def _warn(self, error: LogindError) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("cannot delay shutdowns of the node: %s", error)

    async def _follow(self) -> None:
        logind = await self._connect()
        lock = self._begin_lock(logind)
        try:
            await self._end_if_forgotten(logind)
            async for begins in logind.events():
                if begins is None:
                    await self._end_if_forgotten(logind)
                else:
                    self._announced(begins=begins)
                await _cancel(lock)
                if begins:
                    try:
                        await self._end_pods()
                    finally:
                        logind.release()
                else:
                    lock = self._begin_lock(logind)
        finally:
            await _cancel(lock)
            logind.close()

    async def _end_if_forgotten(self, logind: Logind) -> None:
        """Announce that a shutdown is over which was cancelled while there was no connection, or which logind forgot."""
        if self._state.shutting_down and not await logind.shuts_down():
            self._announced(begins=False)

    def _begin_lock(self, logind: Logind) -> asyncio.Task[None]:
        return asyncio.create_task(self._take_lock(logind), name="shutdown lock")

    async def _take_lock(self, logind: Logind) -> None:
        """Have logind delay shutdowns, with a retry each second."""
        while True:
            try:
                await logind.allow(sum(period.seconds for period in self._periods))
                await logind.inhibit()
                self._logged = ""
                return
            except LogindError as error:
                self._warn(error)
            except Exception:
                # Shutdowns are followed also without a lock.
                log.exception("taking the shutdown lock failed")
            await self._clock.sleep(RECONNECT_SECONDS)

    def _announced(self, *, begins: bool) -> None:
        what = "event" if begins else "cancellation"
        about = core_v1.ObjectReference(kind="Node", name=self._node_name, uid=self._node_name)
        self._recorder.event(about, NORMAL, "NodeShutdown", f"Shutdown manager detected shutdown {what}")
        self._state.shutting_down = begins
        self._state.request_report()

    async def _end_pods(self) -> None:
        began = self._clock.now()
        await self._save(began, None)
        pods = [view.pod for view in self._pods.views() if view.alive or not view.terminating]
        for period, group in grouped(self._periods, pods):
            if not group:
                continue
            log.info(
                "the node is shutting down: terminating %d pods of priority %d and up", len(group), period.priority
            )
            ends = [
                asyncio.create_task(
                    self._pods.end(pod.metadata.uid or "", END, grace(pod, period)),
                    name=f"shutdown of {pod.metadata.namespace}/{pod.metadata.name}",
                )
                for pod in group
            ]
            timer = asyncio.create_task(self._clock.sleep(period.seconds), name="shutdown period")
            all_gone = asyncio.create_task(_all(ends), name="all pods ended")
            try:
                await asyncio.wait({timer, all_gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (timer, all_gone, *ends):
                    task.cancel()
                await asyncio.gather(timer, all_gone, *ends, return_exceptions=True)
            for end in ends:
                if not end.cancelled() and (error := end.exception()) is not None:
                    log.error("%s failed", end.get_name(), exc_info=error)
        await self._save(began, self._clock.now())

    async def _save(self, began: datetime, ended: datetime | None) -> None:
        """Write when the shutdown began and ended; without that, only metrics of the next start are missing."""
        try:
            await asyncio.to_thread(save, self._file, format_time(began), format_time(ended) if ended else None)
        except OSError as error:
            log.warning("failed to store graceful shutdown state: %s", error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Return when all have ended, also those that fail."""
    await asyncio.wait(tasks)
