"""The pods that have a worker on this node: looked up, told what concerns them, evicted, waited for.

This is what the rest of the agent knows of pods: the server, statistics, probes, eviction, shutdown. Where pods come from,
and how they get and lose their workers, is following.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from agent.contracts import PodView
from agent.lifecycle import End
from agent.pods.worker import PodWorker
from agent.status.writer import StatusWriter
from kube.events import WARNING


class PodManager:
    """The node's pods, by UID."""

    def __init__(self, writer: StatusWriter) -> None:
        self._writer = writer
        self.workers: dict[str, PodWorker] = {}
        self._gone: dict[str, list[asyncio.Event]] = {}
        """By UID: who waits for the pod's end."""

    def views(self) -> Sequence[PodView]:
        return [worker.view() for worker in self.workers.values()]

    def view(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name; of several (one ending, one new) the one that is not ending."""
        chosen: PodWorker | None = None
        for worker in self.workers.values():
            metadata = worker.pod.metadata
            if metadata.name == name and metadata.namespace == namespace and (chosen is None or not worker.ending):
                chosen = worker
        return chosen.view() if chosen is not None else None

    def by_uid(self) -> Mapping[str, PodView]:
        return {uid: worker.view() for uid, worker in self.workers.items()}

    def evict(self, uid: str, end: End, grace: int | None = None) -> None:
        """End a pod for a shortage of the node's, with an event; `grace` in seconds, None: the pod's own."""
        worker = self.workers.get(uid)
        if worker is not None and not worker.ending:
            worker.event(WARNING, end.reason, end.message)
            worker.kill(end, grace=grace)

    async def end(self, uid: str, end: End, grace: int) -> None:
        """End a pod within so many seconds; return when what it held is free and the API was told."""
        worker = self.workers.get(uid)
        if worker is None:
            return
        worker.kill(end, grace)
        await self.freed(uid)
        await self._writer.flushed(uid)

    async def freed(self, uid: str) -> None:
        """Return when nothing of a pod that was told to end runs, and what it held is free."""
        worker = self.workers.get(uid)
        if worker is not None and not worker.finished:
            gone = asyncio.Event()
            self._gone.setdefault(uid, []).append(gone)
            await gone.wait()

    @property
    def uids(self) -> set[str]:
        return set(self.workers)

    # -- what is told to them ------------------------------------------------------------------------------------------
    def references_changed(self, uids: Iterable[str]) -> None:
        """ConfigMaps or Secrets of these pods changed."""
        for uid in uids:
            worker = self.workers.get(uid)
            if worker is not None:
                worker.contents_changed()

    def outcome_changed(self, uid: str) -> None:
        """A probe of the pod changed its mind."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.outcome_changed()

    def let_go_on(self, uid: str) -> None:
        """Have those go on who wait for a pod's end: what it held is free."""
        for event in self._gone.pop(uid, ()):
            event.set()
        for worker in self.workers.values():
            if uid in worker.waits_for:
                worker.waits_for.discard(uid)
                worker.look_again()
