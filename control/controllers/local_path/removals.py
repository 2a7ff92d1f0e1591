"""Removes folders of volumes through their nodes' agents, apart from the queues of the provisioner.

A node that does not respond, or removes millions of files, takes a request until its timeout. Workers of a queue that wait for
such requests would do nothing for other volumes and nodes. So each volume has a task, a node gets one request at a time, round
robin over the namespaces of the claims, and `PLACES` nodes have one at once, round robin over nodes. After a timeout the agent
continues to remove the folder, and the next request finds less of it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable

from control.controllers.local_path import plan
from kube import cancellation
from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.fair_places import FairPlaces
from kube.informer import Informer
from kube.object_names import name_of

log = logging.getLogger(__name__)

PLACES = 4
"""Requests at a time, of the 16 that all controllers may have."""
TIMEOUT_SECONDS = 15.0
"""Timeout of a request: above that of a connection to a node."""
UNREACHABLE_SECONDS = 30.0
"""Pause of all requests to a node that could not be connected."""
FIRST_RETRY, LAST_RETRY = 1.0, 300.0
"""Seconds before the folder of a volume is requested again: doubled with each failure."""


class FolderRemovals:
    """The removals under way. `ended` is called with the name of a volume when its removal has ended."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        nodes: Informer[core_v1.Node],
        ended: Callable[[str], None],
    ) -> None:
        self._client, self._clock, self._recorder, self._nodes, self._ended = client, clock, recorder, nodes, ended
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._places = FairPlaces(PLACES, 1, sys.maxsize, None)
        self._of_nodes: dict[str, tuple[FairPlaces, set[str]]] = {}
        """The place of each node, and the volumes that wait for it or have it."""

    def removed(self, volume: core_v1.PersistentVolume) -> bool:
        """Return whether the folder is removed, and start or continue its removal if it is not.

        It is also removed if its node is not in the cluster: its machine left, and took the folder along.
        """
        name = name_of(volume)
        task = self._tasks.get(name)
        if task is not None and task.done():
            del self._tasks[name]
            if not task.cancelled() and task.exception() is None:
                return True
            task = None
        if task is None:
            if not self._nodes_of(volume):
                return True
            task = self._tasks[name] = asyncio.create_task(self._remove(volume), name=f"removal of {name}")
            task.add_done_callback(lambda _: self._ended(name))
        return False

    def restart(self, name: str) -> None:
        """Cancel a volume's removal, because its nodes have changed; `removed` starts another one."""
        if (task := self._tasks.get(name)) is not None:
            task.cancel()

    def forget(self, name: str) -> None:
        """End the removal for a volume whose object is gone."""
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all removals."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _nodes_of(self, volume: core_v1.PersistentVolume) -> list[str]:
        return [name_of(node) for node in plan.nodes_of(volume, self._nodes.list())]

    async def _remove(self, volume: core_v1.PersistentVolume) -> None:
        """Remove a volume's folder from all nodes that may have it, until that has succeeded."""
        done, delay = set[str](), FIRST_RETRY
        while True:
            try:
                if await self._remove_from_all(volume, done):
                    return
            except Exception:
                log.exception("removing the folder of volume %s failed", name_of(volume))
            await self._clock.sleep(delay)
            delay = min(2 * delay, LAST_RETRY)

    async def _remove_from_all(self, volume: core_v1.PersistentVolume, done: set[str]) -> bool:
        """Remove a volume's folder from the nodes that are not in `done`, and add them; return whether that succeeded."""
        missing = [node for node in self._nodes_of(volume) if node not in done]
        for node in missing:
            try:
                await self._remove_on(node, volume)
                done.add(node)
            except Exception as error:
                if not isinstance(error, StatusError):
                    log.exception("removing the folder of volume %s on node %s failed", name_of(volume), node)
                text = f"failed to remove its folder on node {node}: {error}"
                self._recorder.event(volume, "Warning", "VolumeFailedDelete", text)
        return done.issuperset(missing)

    async def _remove_on(self, node: str, volume: core_v1.PersistentVolume) -> None:
        name, claim = name_of(volume), volume.spec.claim_ref
        place, volumes = self._of_nodes.setdefault(node, (FairPlaces(1, 1, sys.maxsize, None), set()))
        volumes.add(name)
        try:
            async with place.place((claim.namespace if claim else "") or ""):
                try:
                    await self._request(node, name)
                except StatusError as error:
                    if error.code in (502, 503):
                        await self._clock.sleep(UNREACHABLE_SECONDS)
                    raise
        finally:
            volumes.discard(name)
            if not volumes:
                del self._of_nodes[node]

    async def _request(self, node: str, name: str) -> None:
        async with self._places.place(node):
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    path = f"/api/v1/nodes/{node}/proxy/localVolumes/{name}"
                    await cancellation.as_error(self._client.call("DELETE", path))
            except TimeoutError as error:
                raise StatusError(
                    504, "Timeout", f"the node has not removed it within {TIMEOUT_SECONDS:g} s"
                ) from error
