"""State of the fake runtime: sandboxes and containers as dictionaries, a task for every "running" container, events."""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from cri.fake.failures import RPCError
from cri.fake.images import FakeImages
from cri.fake.logs import ContainerLog
from cri.fake.script import Script, Sleep
from cri.messages import (
    ContainerEventResponse,
    ContainerEventType,
    ContainerState,
    ContainerStatus,
    PodSandboxConfig,
    PodSandboxStatus,
    RuntimeHandler,
)


@dataclass(slots=True)
class FakeSandbox:
    """One sandbox: its configuration and state."""

    config: PodSandboxConfig
    status: PodSandboxStatus


@dataclass(slots=True)
class FakeContainer:
    """One container: its configuration and state, and the task that plays its process."""

    sandbox_id: str
    config: Any
    status: ContainerStatus
    log: ContainerLog
    script: Script | None = None
    task: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Processes:
    """The state behind both halves of RuntimeService: `sandboxes` and `containers`, by ID."""

    def __init__(self, images: FakeImages, sleep: Sleep = asyncio.sleep, now: Callable[[], int] = time.time_ns) -> None:
        self.images = images
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.conditions = {"RuntimeReady": True, "NetworkReady": True}
        self.info: dict[str, str] = {}
        """The verbose part of the response of Status."""
        self.events_supported = True
        self.handlers: list[RuntimeHandler] = []
        """The runtime handlers in the response of Status; containerd reports none before 2.0."""
        self._sleep = sleep
        self._now = now
        self._ids = itertools.count(1)
        self._listeners: set[asyncio.Queue[ContainerEventResponse]] = set()

    def subscribe(self) -> asyncio.Queue[ContainerEventResponse]:
        """Open a queue that gets every event from now on."""
        queue: asyncio.Queue[ContainerEventResponse] = asyncio.Queue()
        self._listeners.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[ContainerEventResponse]) -> None:
        """Close such a queue."""
        self._listeners.discard(queue)

    async def crash(self, container_id: str, exit_code: int = 137, reason: str = "") -> None:
        """Let a running container end, as if killed from outside; reason may be OOMKilled."""
        found = self._container(container_id)
        await self._kill(found, exit_code)
        found.status.reason = reason or found.status.reason

    async def close(self) -> None:
        """End every playing container."""
        for found in self.containers.values():
            await self._kill(found)

    def _container(self, container_id: str) -> FakeContainer:
        found = self.containers.get(container_id)
        if found is None:
            raise RPCError(
                grpc.StatusCode.NOT_FOUND, f'an error occurred when try to find container "{container_id}": not found'
            )
        return found

    def _of(self, sandbox_id: str) -> list[FakeContainer]:
        return [found for found in self.containers.values() if found.sandbox_id == sandbox_id]

    async def _play(self, found: FakeContainer) -> None:
        assert found.script is not None
        self._exited(found, await found.script.run(found.log.write, self._sleep))

    async def _kill(self, found: FakeContainer, exit_code: int = 137) -> None:
        if found.task is not None and not found.task.done():
            found.task.cancel()
            await asyncio.wait({found.task})
        if found.status.state == ContainerState.CONTAINER_RUNNING:
            self._exited(found, exit_code)

    def _exited(self, found: FakeContainer, exit_code: int) -> None:
        found.status.state = ContainerState.CONTAINER_EXITED
        found.status.finished_at = self._now()
        found.status.exit_code = exit_code
        found.status.reason = "Completed" if exit_code == 0 else "Error"
        found.log.close()
        found.ended.set()
        self._tell(found.status.id, ContainerEventType.CONTAINER_STOPPED_EVENT, found.sandbox_id)

    def _tell(self, container_id: str, kind: ContainerEventType, sandbox_id: str) -> None:
        sandbox = self.sandboxes.get(sandbox_id)
        event = ContainerEventResponse(
            container_id=container_id,
            container_event_type=kind,
            created_at=self._now(),
            pod_sandbox_status=sandbox.status if sandbox else PodSandboxStatus(id=sandbox_id),
            containers_statuses=[found.status for found in self._of(sandbox_id)],
        )
        for queue in self._listeners:
            queue.put_nowait(event)
