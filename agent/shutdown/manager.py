"""The node's own end: told of a shutdown by logind, it ends pods group by group and then lets the shutdown go on.

While it lasts the node is not ready and takes no pod. Pods end as Failed with reason Terminated, so that their controllers make
others elsewhere. A shutdown that was called off makes the node ready again; what ended stays ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from agent.lifecycle import End
from agent.node.state import NodeState
from agent.pods.manager import PodManager
from agent.shutdown.logind import Logind, LogindError
from agent.shutdown.periods import Period, grace, grouped
from agent.shutdown.state import FILE, note
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
        periods: Iterable[Period],
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

    async def run(self) -> None:
        """Follow logind until cancelled; without it there is nothing to be told by, and the next try is a second later."""
        told = ""
        while True:
            try:
                await self._follow()
                told = ""
            except LogindError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("shutdowns of the node cannot be held back: %s", error)
            await self._clock.sleep(RECONNECT_SECONDS)

    async def _follow(self) -> None:
        logind = await self._connect()
        try:
            await logind.allow(sum(period.seconds for period in self._periods))
            await logind.inhibit()
            async for begins in logind.events():
                what = "event" if begins else "cancellation"
                about = core_v1.ObjectReference(kind="Node", name=self._node_name, uid=self._node_name)
                self._recorder.event(about, NORMAL, "NodeShutdown", f"Shutdown manager detected shutdown {what}")
                self._state.shutting_down = begins
                self._state.request_report()
                if begins:
                    try:
                        await self._end_pods()
                    finally:
                        logind.release()
                else:
                    await logind.inhibit()
        finally:
            logind.close()

    async def _end_pods(self) -> None:
        began = self._clock.now()
        await asyncio.to_thread(note, self._file, format_time(began), None)
        pods = [view.pod for view in self._pods.views() if view.alive or not view.terminating]
        for period, group in grouped(self._periods, pods):
            if not group:
                continue
            log.info("the node is shutting down: ending %d pods of priority %d and up", len(group), period.priority)
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
        await asyncio.to_thread(note, self._file, format_time(began), format_time(self._clock.now()))


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)
