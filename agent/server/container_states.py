"""Asks the runtime whether a container runs: once for all who follow its log at the time, and for its state alone.

The whole status of a container may have 16 MiB (its user may be in millions of groups), and hundreds may follow its log. An
entry of the runtime's list has neither groups nor mounts.
"""

from __future__ import annotations

import asyncio

from cri.errors import CRIError
from cri.messages import ContainerState
from cri.runtime_service import RuntimeService

AT_ONCE = 8
"""Containers that the runtime is asked about at a time."""


class ContainerStates:
    """Questions under way, by container ID."""

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime
        self._asked: dict[str, asyncio.Task[bool]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def running(self, container_id: str) -> bool:
        """Return whether the container runs; False if the runtime cannot tell."""
        task = self._asked.get(container_id)
        if task is None:
            task = asyncio.create_task(self._ask(container_id), name=f"state of container {container_id[:13]}")
            self._asked[container_id] = task
            task.add_done_callback(lambda _: self._asked.pop(container_id))
        return await asyncio.shield(task)

    async def _ask(self, container_id: str) -> bool:
        async with self._slots:
            try:
                found = await self._runtime.list_containers(container_id=container_id)
            except CRIError:
                return False
        return any(each.id == container_id and each.state == ContainerState.CONTAINER_RUNNING for each in found)
