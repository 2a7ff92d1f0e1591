"""Reads from the runtime whether containers still run, for the readers that follow their logs.

A reader reads it every five seconds, and a container may have hundreds of readers. ContainerStatus may have 16 MiB: it has all
mounts and the groups of the container's user. So the container's entry in the runtime's list is read, which has labels and
annotations only; readers of a container share a request, and few requests are in progress, round robin over namespaces.
(Upstream requests the status for each reader.)
"""

from __future__ import annotations

import asyncio

from cri.errors import CRIError
from cri.messages import ContainerState
from cri.runtime_service import RuntimeService
from kube.serving.fair_queue import Slots

REQUESTS = 2
"""Requests in progress."""


class ContainerStates:
    """States of one runtime's containers."""

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime
        self._slots = Slots(REQUESTS)
        self._requests: dict[str, asyncio.Task[bool]] = {}
        """By container ID: those that wait for a slot and those in progress."""

    async def running(self, namespace: str, container_id: str) -> bool:
        """Return whether a container of a namespace runs; False if the runtime does not answer."""
        request = self._requests.get(container_id)
        if request is None:
            request = asyncio.create_task(self._read(namespace, container_id), name=f"state of {container_id[:13]}")
            self._requests[container_id] = request
            request.add_done_callback(lambda _: self._requests.pop(container_id))
        return await asyncio.shield(request)  # others may wait for it if this reader is cancelled

    async def _read(self, namespace: str, container_id: str) -> bool:
        async with self._slots.slot(namespace):
            try:
                listed = await self._runtime.list_containers(container_id=container_id)
            except CRIError:
                return False
        return any(one.state == ContainerState.CONTAINER_RUNNING for one in listed)
