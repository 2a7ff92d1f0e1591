"""The fake's sandboxes and containers: a dictionary of each, and a task for every "running" container.

States, idempotence and messages are those of containerd, as the contract tests see them on both.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from cri.fake.failures import RPCError
from cri.fake.images import FakeImages
from cri.fake.logs import ContainerLog
from cri.fake.script import Script, Sleep, UnknownCommandError
from cri.messages import (
    Container,
    ContainerEventResponse,
    ContainerEventType,
    ContainerState,
    ContainerStatus,
    ImageSpec,
    Namespace,
    NamespaceMode,
    PodSandbox,
    PodSandboxConfig,
    PodSandboxState,
    PodSandboxStatus,
    RuntimeCondition,
    RuntimeStatus,
    api,
)

_NOT_FOUND = grpc.StatusCode.NOT_FOUND
_UNKNOWN = grpc.StatusCode.UNKNOWN


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


class FakeContainers:
    """RuntimeService over dictionaries: `sandboxes` and `containers`, by ID."""

    def __init__(self, images: FakeImages, sleep: Sleep = asyncio.sleep, now: Callable[[], int] = time.time_ns) -> None:
        self.images = images
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.conditions = {"RuntimeReady": True, "NetworkReady": True}
        self.events_supported = True
        self._sleep = sleep
        self._now = now
        self._ids = itertools.count(1)
        self._listeners: set[asyncio.Queue[ContainerEventResponse]] = set()

    # ---- the runtime ----

    async def version(self, request: Any) -> Any:
        """Answer Version."""
        return api.VersionResponse(
            version="0.1.0", runtime_name="fake", runtime_version="1.0.0", runtime_api_version="v1"
        )

    async def status(self, request: Any) -> Any:
        """Answer Status from `conditions`."""
        conditions = [RuntimeCondition(type=name, status=value) for name, value in self.conditions.items()]
        return api.StatusResponse(status=RuntimeStatus(conditions=conditions))

    async def update_runtime_config(self, request: Any) -> Any:
        """Answer UpdateRuntimeConfig."""
        return api.UpdateRuntimeConfigResponse()

    # ---- sandboxes ----

    async def run_pod_sandbox(self, request: Any) -> Any:
        """Answer RunPodSandbox."""
        meta = request.config.metadata
        name = f"{meta.name}_{meta.namespace}_{meta.uid}_{meta.attempt}"
        for sandbox_id, other in self.sandboxes.items():
            if other.config.metadata == meta:
                reserved = f'name "{name}" is reserved for "{sandbox_id}"'
                raise RPCError(_UNKNOWN, f'failed to reserve sandbox name "{name}": {reserved}')
        number = next(self._ids)
        sandbox_id = f"{number:064x}"
        config = PodSandboxConfig()
        config.CopyFrom(request.config)
        status = PodSandboxStatus(
            id=sandbox_id,
            metadata=meta,
            state=PodSandboxState.SANDBOX_READY,
            created_at=self._now(),
            labels=config.labels,
            annotations=config.annotations,
            runtime_handler=request.runtime_handler,
        )
        options = config.linux.security_context.namespace_options
        status.linux.namespaces.CopyFrom(Namespace(options=options))
        if options.network != NamespaceMode.NODE:
            status.network.ip = f"10.244.{number >> 8 & 255}.{number & 255}"
        self.sandboxes[sandbox_id] = FakeSandbox(config, status)
        self._tell(sandbox_id, ContainerEventType.CONTAINER_STARTED_EVENT, sandbox_id)
        return api.RunPodSandboxResponse(pod_sandbox_id=sandbox_id)

    async def stop_pod_sandbox(self, request: Any) -> Any:
        """Answer StopPodSandbox: kill its containers at once."""
        found = self.sandboxes.get(request.pod_sandbox_id)
        if found is not None:
            for container in self._of(request.pod_sandbox_id):
                await self._kill(container)
            if found.status.state == PodSandboxState.SANDBOX_READY:
                found.status.state = PodSandboxState.SANDBOX_NOTREADY
                self._tell(found.status.id, ContainerEventType.CONTAINER_STOPPED_EVENT, found.status.id)
        return api.StopPodSandboxResponse()

    async def remove_pod_sandbox(self, request: Any) -> Any:
        """Answer RemovePodSandbox."""
        if request.pod_sandbox_id in self.sandboxes:
            await self.stop_pod_sandbox(request)
            for container in self._of(request.pod_sandbox_id):
                del self.containers[container.status.id]
            del self.sandboxes[request.pod_sandbox_id]
            self._tell(request.pod_sandbox_id, ContainerEventType.CONTAINER_DELETED_EVENT, request.pod_sandbox_id)
        return api.RemovePodSandboxResponse()

    async def pod_sandbox_status(self, request: Any) -> Any:
        """Answer PodSandboxStatus."""
        found = self.sandboxes.get(request.pod_sandbox_id)
        if found is None:
            raise RPCError(_NOT_FOUND, "an error occurred when try to find sandbox: not found")
        return api.PodSandboxStatusResponse(status=found.status)

    async def list_pod_sandbox(self, request: Any) -> Any:
        """Answer ListPodSandbox."""
        chosen = request.filter
        items = []
        for found in self.sandboxes.values():
            status = found.status
            if (
                chosen.id in ("", status.id)
                and (not chosen.HasField("state") or chosen.state.state == status.state)
                and chosen.label_selector.items() <= status.labels.items()
            ):
                items.append(
                    PodSandbox(
                        id=status.id,
                        metadata=status.metadata,
                        state=status.state,
                        created_at=status.created_at,
                        labels=status.labels,
                        annotations=status.annotations,
                        runtime_handler=status.runtime_handler,
                    )
                )
        return api.ListPodSandboxResponse(items=items)

    # ---- containers ----

    async def create_container(self, request: Any) -> Any:
        """Answer CreateContainer."""
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is None:
            raise RPCError(_NOT_FOUND, f'failed to find sandbox id "{request.pod_sandbox_id}": not found')
        config = api.ContainerConfig()
        config.CopyFrom(request.config)
        for other in self._of(request.pod_sandbox_id):
            if other.status.metadata == config.metadata:
                pod = sandbox.config.metadata
                name = f"{config.metadata.name}_{pod.name}_{pod.namespace}_{pod.uid}_{config.metadata.attempt}"
                reserved = f'name "{name}" is reserved for "{other.status.id}"'
                raise RPCError(_UNKNOWN, f'failed to reserve container name "{name}": {reserved}')
        image = self.images.find(config.image.image)
        if image is None:
            raise RPCError(_NOT_FOUND, f'failed to resolve image "{config.image.image}": not found')
        container_id = f"{next(self._ids):064x}"
        log_path = ""
        if config.log_path and sandbox.config.log_directory:
            log_path = str(Path(sandbox.config.log_directory) / config.log_path)
        status = ContainerStatus(
            id=container_id,
            metadata=config.metadata,
            state=ContainerState.CONTAINER_CREATED,
            created_at=self._now(),
            image=ImageSpec(image=image.repo_tags[0] if image.repo_tags else image.id),
            image_ref=image.repo_digests[0],
            image_id=image.id,
            labels=config.labels,
            annotations=config.annotations,
            mounts=config.mounts,
            log_path=log_path,
        )
        self.containers[container_id] = FakeContainer(request.pod_sandbox_id, config, status, ContainerLog(log_path))
        self._tell(container_id, ContainerEventType.CONTAINER_CREATED_EVENT, request.pod_sandbox_id)
        return api.CreateContainerResponse(container_id=container_id)

    async def start_container(self, request: Any) -> Any:
        """Answer StartContainer: begin to play the container's command."""
        found = self._container(request.container_id)
        if found.status.state != ContainerState.CONTAINER_CREATED:
            state = ContainerState.Name(found.status.state)
            message = f"container is in {state} state"
            raise RPCError(_UNKNOWN, f'failed to set starting state for container "{found.status.id}": {message}')
        command = [*found.config.command, *found.config.args] or ["sh"]
        try:
            found.script = Script.parse(command)
        except UnknownCommandError as error:
            found.status.state = ContainerState.CONTAINER_EXITED
            found.status.finished_at = self._now()
            found.status.exit_code = 128
            found.status.reason = "StartError"
            reason = f'exec: "{error}": executable file not found in $PATH: unknown'
            found.status.message = (
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
                f"runc create failed: unable to start container process: {reason}"
            )
            raise RPCError(_UNKNOWN, found.status.message) from error
        found.status.state = ContainerState.CONTAINER_RUNNING
        found.status.started_at = self._now()
        found.task = asyncio.create_task(self._play(found), name=f"fake container {found.status.id}")
        self._tell(found.status.id, ContainerEventType.CONTAINER_STARTED_EVENT, found.sandbox_id)
        return api.StartContainerResponse()

    async def stop_container(self, request: Any) -> Any:
        """Answer StopContainer: TERM, the grace period, KILL."""
        found = self.containers.get(request.container_id)
        if found is not None and found.status.state == ContainerState.CONTAINER_RUNNING:
            if request.timeout > 0 and found.script is not None:
                options = found.config.linux.security_context.namespace_options
                found.script.terminate(options.pid == NamespaceMode.CONTAINER)
                grace = asyncio.ensure_future(self._sleep(request.timeout))
                ended = asyncio.ensure_future(found.ended.wait())
                await asyncio.wait({grace, ended}, return_when=asyncio.FIRST_COMPLETED)
                grace.cancel()
                ended.cancel()
            await self._kill(found)
        return api.StopContainerResponse()

    async def remove_container(self, request: Any) -> Any:
        """Answer RemoveContainer."""
        found = self.containers.get(request.container_id)
        if found is not None:
            await self._kill(found)
            del self.containers[request.container_id]
            self._tell(found.status.id, ContainerEventType.CONTAINER_DELETED_EVENT, found.sandbox_id)
        return api.RemoveContainerResponse()

    async def container_status(self, request: Any) -> Any:
        """Answer ContainerStatus."""
        return api.ContainerStatusResponse(status=self._container(request.container_id).status)

    async def list_containers(self, request: Any) -> Any:
        """Answer ListContainers."""
        chosen = request.filter
        listed = []
        for found in self.containers.values():
            status = found.status
            if (
                chosen.id in ("", status.id)
                and chosen.pod_sandbox_id in ("", found.sandbox_id)
                and (not chosen.HasField("state") or chosen.state.state == status.state)
                and chosen.label_selector.items() <= status.labels.items()
            ):
                listed.append(
                    Container(
                        id=status.id,
                        pod_sandbox_id=found.sandbox_id,
                        metadata=status.metadata,
                        image=found.config.image,
                        image_ref=status.image_id,
                        image_id=status.image_id,
                        state=status.state,
                        created_at=status.created_at,
                        labels=status.labels,
                        annotations=status.annotations,
                    )
                )
        return api.ListContainersResponse(containers=listed)

    async def update_container_resources(self, request: Any) -> Any:
        """Answer UpdateContainerResources: the limits show in the status."""
        found = self._container(request.container_id)
        found.status.resources.linux.MergeFrom(request.linux)
        return api.UpdateContainerResourcesResponse()

    async def reopen_container_log(self, request: Any) -> Any:
        """Answer ReopenContainerLog."""
        found = self._container(request.container_id)
        if found.status.state != ContainerState.CONTAINER_RUNNING:
            raise RPCError(_UNKNOWN, "container is not running")
        found.log.reopen()
        return api.ReopenContainerLogResponse()

    async def exec_sync(self, request: Any) -> Any:
        """Answer ExecSync: play the command."""
        found = self._container(request.container_id)
        if found.status.state != ContainerState.CONTAINER_RUNNING:
            state = ContainerState.Name(found.status.state)
            raise RPCError(_UNKNOWN, f"failed to exec in container: container is in {state} state")
        output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        try:
            script = Script.parse(list(request.cmd))
        except UnknownCommandError as error:
            reason = f'exec: "{error}": executable file not found in $PATH: unknown'
            raise RPCError(_UNKNOWN, f"failed to exec in container: failed to start exec: {reason}") from error
        playing = asyncio.ensure_future(script.run(lambda stream, data: output[stream].extend(data), self._sleep))
        waits = {playing}
        if request.timeout:
            waits.add(asyncio.ensure_future(self._expire(request.timeout)))
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if playing not in done:
            late = f"failed to exec in container: timeout {request.timeout}s exceeded: context deadline exceeded"
            raise RPCError(grpc.StatusCode.DEADLINE_EXCEEDED, late)
        return api.ExecSyncResponse(
            stdout=bytes(output["stdout"]), stderr=bytes(output["stderr"]), exit_code=playing.result()
        )

    async def _expire(self, seconds: float) -> int:
        await self._sleep(seconds)
        return 0

    # ---- events, and what tests call ----

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
            raise RPCError(_NOT_FOUND, f'an error occurred when try to find container "{container_id}": not found')
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
