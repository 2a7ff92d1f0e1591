"""The fake's containers, and the runtime's version and status; messages and states are containerd's.

The contract tests hold the same bodies against this and a real containerd.
"""

import asyncio
from pathlib import Path
from typing import Any

import grpc

from cri.fake.failures import RPCError
from cri.fake.logs import ContainerLog
from cri.fake.processes import FakeContainer
from cri.fake.sandboxes import FakeSandboxes
from cri.fake.script import Script, UnknownCommandError
from cri.messages import (
    Container,
    ContainerEventType,
    ContainerState,
    ContainerStatus,
    ImageSpec,
    NamespaceMode,
    RuntimeCondition,
    RuntimeStatus,
    api,
)

_NOT_FOUND = grpc.StatusCode.NOT_FOUND
_UNKNOWN = grpc.StatusCode.UNKNOWN


class FakeContainers(FakeSandboxes):
    """The whole of RuntimeService."""

    async def version(self, request: Any) -> Any:
        """Answer Version."""
        return api.VersionResponse(
            version="0.1.0", runtime_name="fake", runtime_version="1.0.0", runtime_api_version="v1"
        )

    async def status(self, request: Any) -> Any:
        """Answer Status from `conditions`."""
        conditions = [RuntimeCondition(type=name, status=value) for name, value in self.conditions.items()]
        info = self.info if request.verbose else {}
        return api.StatusResponse(
            status=RuntimeStatus(conditions=conditions), runtime_handlers=self.handlers, info=info
        )

    cgroup_driver = ""
    """Empty, as from a runtime that does not report it (containerd before 2.0)."""

    async def runtime_config(self, request: Any) -> Any:
        """Answer RuntimeConfig."""
        if not self.cgroup_driver:
            raise RPCError(grpc.StatusCode.UNIMPLEMENTED, "unknown method RuntimeConfig")
        driver = api.CgroupDriver.SYSTEMD if self.cgroup_driver == "systemd" else api.CgroupDriver.CGROUPFS
        return api.RuntimeConfigResponse(linux=api.LinuxRuntimeConfiguration(cgroup_driver=driver))

    async def update_runtime_config(self, request: Any) -> Any:
        """Answer UpdateRuntimeConfig."""
        return api.UpdateRuntimeConfigResponse()

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
                found.script.terminate(first_process=options.pid == NamespaceMode.CONTAINER)
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

    async def container_stats(self, request: Any) -> Any:
        """Answer ContainerStats: a container that uses no memory."""
        found = self._container(request.container_id)
        attributes = api.ContainerAttributes(id=found.status.id, metadata=found.status.metadata)
        return api.ContainerStatsResponse(stats=api.ContainerStats(attributes=attributes))

    async def checkpoint_container(self, request: Any) -> Any:
        """Answer CheckpointContainer: the archive is the container's ID; containerd before 2.0 has no such call."""
        found = self._container(request.container_id)
        await asyncio.to_thread(Path(request.location).write_text, found.status.id)
        return api.CheckpointContainerResponse()

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
