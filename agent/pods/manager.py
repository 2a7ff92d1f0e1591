"""Looks up and evicts the pods that have a worker on this node, passes events on to them, and waits for their end.

This is the interface of pods for the rest of the agent: server, statistics, probes, eviction, shutdown. Where pods come from,
and how they get and lose their workers, is in workers.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from agent.interfaces import PodView
from agent.lifecycle import End
from agent.pods import preemption
from agent.pods.worker import PodWorker
from agent.status.writer import StatusWriter
from cri.errors import CRIError
from kube.events import WARNING

log = logging.getLogger(__name__)
AT_ONCE, NEXT_SECONDS = 8, 0.02
"""Pods whose volumes are refreshed at once after a change of an object that they name; seconds between the next ones."""


class PodManager:
    """The node's pods, by UID."""

    def __init__(self, writer: StatusWriter) -> None:
        self.writer = writer
        self.workers: dict[str, PodWorker] = {}
        self._waiters: dict[str, list[asyncio.Event]] = {}
        """By UID: who waits until the pod's resources are released."""

    def views(self) -> Sequence[PodView]:
        return [worker.reporter.view() for worker in self.workers.values()]

    def view(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name; of several (one ending, one new) the one that is not ending."""
        chosen: PodWorker | None = None
        for worker in self.workers.values():
            metadata = worker.state.pod.metadata
            if (
                metadata.name == name
                and metadata.namespace == namespace
                and (chosen is None or not worker.state.terminating)
            ):
                chosen = worker
        return chosen.reporter.view() if chosen is not None else None

    def by_uid(self) -> Mapping[str, PodView]:
        return {uid: worker.reporter.view() for uid, worker in self.workers.items()}

    def evict(self, uid: str, end: End, grace: int | None = None, *, grounds: str = "") -> None:
        """Terminate a pod for a shortage of the node's, with an event; `grace` in seconds, None: the pod's own.

        The journal has the grounds. One that is being terminated has no more time than that either.
        """
        worker = self.workers.get(uid)
        if worker is not None and not worker.state.termination.finished:
            worker.reporter.event(WARNING, end.reason, end.message, grounds=grounds)
            worker.kill(end, grace=grace)

    def exceeded_grace(self, uid: str) -> None:
        """Record that a preempted pod has not released its resources in time."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.reporter.event(WARNING, preemption.EXCEEDED, preemption.EXCEEDED_MESSAGE)

    async def remove_leftovers_of_ended(self) -> None:
        """Remove containers, sandboxes and logs of pods that have ended; those of one that fails are kept."""
        for uid, worker in list(self.workers.items()):
            if worker.state.termination.finished:
                try:
                    await worker.remove_leftovers()
                except (CRIError, OSError) as error:
                    log.warning("pod %s: removing its containers and logs: %s", uid, error)

    async def end(self, uid: str, end: End, grace: int) -> None:
        """Terminate a pod within `grace` seconds; return when its resources are released and its status is reported."""
        worker = self.workers.get(uid)
        if worker is None:
            return
        worker.kill(end, grace)
        await self.wait_released(uid)
        await self.writer.flushed(uid)

    async def wait_released(self, uid: str) -> None:
        """Return when nothing of a terminating pod runs, and its resources are released, volumes included."""
        worker = self.workers.get(uid)
        if worker is not None and not worker.state.termination.torn_down:
            released = asyncio.Event()
            self._waiters.setdefault(uid, []).append(released)
            await released.wait()

    @property
    def uids(self) -> set[str]:
        return set(self.workers)

    # -- events ------------------------------------------------------------------------------------------
    def references_changed(self, uids: Iterable[str]) -> None:
        """Handle a change of ConfigMaps or Secrets that these pods name: of a few at once, of many one after another."""
        workers = [worker for uid in uids if (worker := self.workers.get(uid)) is not None]
        for number, worker in enumerate(workers):
            worker.references_changed(max(0, number - AT_ONCE) * NEXT_SECONDS)

    def outcome_changed(self, uid: str) -> None:
        """Handle a changed probe outcome of the pod."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.request_sync()

    def resources_released(self, uid: str) -> None:
        """Wake pods that wait for the resources of a pod: they are released."""
        for event in self._waiters.pop(uid, ()):
            event.set()
        for worker in self.workers.values():
            if uid in worker.state.preempted:
                del worker.state.preempted[uid]
                worker.request_sync()
