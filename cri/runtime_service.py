"""CRI's RuntimeService, one method for each call, with the arguments and the result field that the agent uses.

Deadlines are those of upstream's kubelet (pkg cri-client/remote_runtime): runtimeRequestTimeout for every
call, twice that for RunPodSandbox (the sandbox image may have to be pulled), the grace period on top for
StopContainer, the command's own timeout on top for ExecSync.

Stopping and removing a missing sandbox or container succeeds, as CRI specifies; containerd 1.6 implements that only for
removal.
"""

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from google.protobuf.message import Message

from cri import errors
from cri.channel import Channel
from cri.messages import (
    Container,
    ContainerConfig,
    ContainerState,
    ContainerStats,
    ContainerStatus,
    ExecSyncResponse,
    LinuxContainerResources,
    MetricDescriptor,
    PodSandbox,
    PodSandboxConfig,
    PodSandboxMetrics,
    PodSandboxState,
    PodSandboxStats,
    PodSandboxStatus,
    StatusResponse,
    VersionResponse,
    api,
)

R = TypeVar("R", bound=Message)
LONGEST_SECONDS = 10 * 365 * 24 * 3600
"""Longest timeout in a request. A pod may have a grace period of 2^63 - 1 seconds, and gRPC's deadlines are nanoseconds since
1970 in 64 bits: a later one counts as past."""


class RuntimeService:
    """Pod sandboxes and containers of one runtime; `request_timeout` is in seconds."""

    def __init__(self, channel: Channel, request_timeout: float = 120.0, commands: Channel | None = None) -> None:
        """`commands`: another channel for the output of commands and for other messages that are received in turn."""
        self._channel = channel
        self._commands = commands or channel
        self._timeout = request_timeout

    async def version(self) -> VersionResponse:
        """Request the runtime's name and versions."""
        return await self._call("Version", api.VersionRequest(version="0.1.0"), api.VersionResponse)

    async def status(self, *, verbose: bool = False) -> StatusResponse:
        """Read the RuntimeReady and NetworkReady conditions, handlers and features."""
        return await self._call("Status", api.StatusRequest(verbose=verbose), api.StatusResponse)

    async def update_runtime_config(self, pod_cidr: str) -> None:
        """Tell the runtime the node's pod range."""
        config = api.RuntimeConfig(network_config=api.NetworkConfig(pod_cidr=pod_cidr))
        request = api.UpdateRuntimeConfigRequest(runtime_config=config)
        await self._call("UpdateRuntimeConfig", request, api.UpdateRuntimeConfigResponse)

    async def cgroup_driver(self) -> str:
        """Return "systemd" or "cgroupfs". Raise UnimplementedError from runtimes before containerd 2.0."""
        answer = await self._call("RuntimeConfig", api.RuntimeConfigRequest(), api.RuntimeConfigResponse)
        return "cgroupfs" if answer.linux.cgroup_driver == api.CgroupDriver.CGROUPFS else "systemd"

    async def run_pod_sandbox(self, config: PodSandboxConfig, runtime_handler: str = "") -> str:
        """Create and start a sandbox; return its ID."""
        request = api.RunPodSandboxRequest(config=config, runtime_handler=runtime_handler)
        answer = await self._call("RunPodSandbox", request, api.RunPodSandboxResponse, self._timeout * 2)
        return answer.pod_sandbox_id

    async def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """Kill what runs in the sandbox and tear down its network; idempotent."""
        request = api.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        with contextlib.suppress(errors.NotFoundError):
            await self._call("StopPodSandbox", request, api.StopPodSandboxResponse)

    async def remove_pod_sandbox(self, sandbox_id: str) -> None:
        """Remove the sandbox with its containers; idempotent."""
        request = api.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        with contextlib.suppress(errors.NotFoundError):
            await self._call("RemovePodSandbox", request, api.RemovePodSandboxResponse)

    async def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus:
        """Read one sandbox. Raise NotFoundError."""
        request = api.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        return (await self._call("PodSandboxStatus", request, api.PodSandboxStatusResponse)).status

    async def pod_sandbox_info(self, sandbox_id: str) -> dict[str, str]:
        """Read what the runtime adds in verbose mode: JSON texts by key. Raise NotFoundError."""
        request = api.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        return dict((await self._call("PodSandboxStatus", request, api.PodSandboxStatusResponse)).info)

    async def list_pod_sandboxes(
        self,
        *,
        sandbox_id: str = "",
        state: PodSandboxState | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[PodSandbox]:
        """List the sandboxes that meet every given condition."""
        selected = api.PodSandboxFilter(id=sandbox_id, label_selector=labels)
        if state is not None:
            selected.state.CopyFrom(api.PodSandboxStateValue(state=state))
        request = api.ListPodSandboxRequest(filter=selected)
        return list((await self._call("ListPodSandbox", request, api.ListPodSandboxResponse)).items)

    async def update_pod_sandbox_resources(
        self, sandbox_id: str, *, overhead: LinuxContainerResources, resources: LinuxContainerResources
    ) -> None:
        """Tell the runtime that the pod's cgroup was resized. Raise UnimplementedError from older runtimes."""
        request = api.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id=sandbox_id, overhead=overhead, resources=resources
        )
        await self._call("UpdatePodSandboxResources", request, api.UpdatePodSandboxResourcesResponse)

    async def create_container(self, sandbox_id: str, config: ContainerConfig, sandbox_config: PodSandboxConfig) -> str:
        """Create a container in a sandbox; return its ID."""
        request = api.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config)
        return (await self._call("CreateContainer", request, api.CreateContainerResponse)).container_id

    async def start_container(self, container_id: str) -> None:
        """Start a created container."""
        request = api.StartContainerRequest(container_id=container_id)
        await self._call("StartContainer", request, api.StartContainerResponse)

    async def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Signal the container and kill it after the grace period; return when it is dead. Idempotent."""
        seconds = min(grace_seconds, LONGEST_SECONDS)
        request = api.StopContainerRequest(container_id=container_id, timeout=seconds)
        with contextlib.suppress(errors.NotFoundError):
            await self._call("StopContainer", request, api.StopContainerResponse, self._timeout + seconds)

    async def remove_container(self, container_id: str) -> None:
        """Remove a container; idempotent."""
        request = api.RemoveContainerRequest(container_id=container_id)
        with contextlib.suppress(errors.NotFoundError):
            await self._call("RemoveContainer", request, api.RemoveContainerResponse)

    async def container_status(
        self, container_id: str, *, turn: AbstractAsyncContextManager[object] | None = None
    ) -> ContainerStatus:
        """Read one container. Raise NotFoundError.

        With `turn` the status is received inside of it: it has all mounts, and the groups of the user, up to 16 MiB.
        """
        request, answer = api.ContainerStatusRequest(container_id=container_id), api.ContainerStatusResponse
        if turn is None:
            return (await self._call("ContainerStatus", request, answer)).status
        path = "/runtime.v1.RuntimeService/ContainerStatus"
        return await self._commands.unary_in_turn(
            path, request, answer, self._timeout, turn, lambda received: received.status
        )

    async def container_info(self, container_id: str) -> dict[str, str]:
        """Read what the runtime adds in verbose mode: JSON texts by key. Raise NotFoundError."""
        request = api.ContainerStatusRequest(container_id=container_id, verbose=True)
        return dict((await self._call("ContainerStatus", request, api.ContainerStatusResponse)).info)

    async def list_containers(
        self,
        *,
        container_id: str = "",
        sandbox_id: str = "",
        state: ContainerState | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[Container]:
        """List the containers that meet every given condition."""
        selected = api.ContainerFilter(id=container_id, pod_sandbox_id=sandbox_id, label_selector=labels)
        if state is not None:
            selected.state.CopyFrom(api.ContainerStateValue(state=state))
        request = api.ListContainersRequest(filter=selected)
        return list((await self._call("ListContainers", request, api.ListContainersResponse)).containers)

    async def update_container_resources(self, container_id: str, resources: LinuxContainerResources) -> None:
        """Change a container's limits in place."""
        request = api.UpdateContainerResourcesRequest(container_id=container_id, linux=resources)
        await self._call("UpdateContainerResources", request, api.UpdateContainerResourcesResponse)

    async def reopen_container_log(self, container_id: str) -> None:
        """Have the runtime write to a new file after rotation renamed the old one."""
        request = api.ReopenContainerLogRequest(container_id=container_id)
        await self._call("ReopenContainerLog", request, api.ReopenContainerLogResponse)

    async def checkpoint_container(self, container_id: str, location: str, timeout_seconds: int = 0) -> None:
        """Write a running container's state to the archive at location."""
        seconds = min(timeout_seconds, LONGEST_SECONDS)
        request = api.CheckpointContainerRequest(container_id=container_id, location=location, timeout=seconds)
        deadline = self._timeout + seconds
        await self._call("CheckpointContainer", request, api.CheckpointContainerResponse, deadline)

    async def exec_sync(
        self,
        container_id: str,
        command: Sequence[str],
        timeout_seconds: int = 0,
        *,
        most: int | None = None,
        turn: AbstractAsyncContextManager[object] | None = None,
    ) -> ExecSyncResponse:
        """Run a command to its end; 0 waits for ever. Raise DeadlineExceededError when it takes longer.

        The output is received inside `turn`, which is entered after the command's end: a runtime sends up to 16 MiB. `most`:
        bytes that are returned of either stream.
        """
        seconds = min(timeout_seconds, LONGEST_SECONDS)
        request = api.ExecSyncRequest(container_id=container_id, cmd=command, timeout=seconds)
        deadline = self._timeout + seconds if seconds else None

        def shorten(answer: ExecSyncResponse) -> ExecSyncResponse:
            if most is None or len(answer.stdout) + len(answer.stderr) <= most:
                return answer
            stdout, stderr = answer.stdout[:most], answer.stderr[:most]
            return ExecSyncResponse(stdout=stdout, stderr=stderr, exit_code=answer.exit_code)

        turn = turn or contextlib.nullcontext()
        path = "/runtime.v1.RuntimeService/ExecSync"
        return await self._commands.unary_in_turn(path, request, ExecSyncResponse, deadline, turn, shorten)

    async def exec_url(
        self,
        container_id: str,
        command: Sequence[str],
        *,
        tty: bool = False,
        stdin: bool = False,
        stdout: bool = False,
        stderr: bool = False,
    ) -> str:
        """Prepare a streaming exec; return the URL on the runtime's streaming server, good for a minute."""
        request = api.ExecRequest(
            container_id=container_id, cmd=command, tty=tty, stdin=stdin, stdout=stdout, stderr=stderr
        )
        return (await self._call("Exec", request, api.ExecResponse)).url

    async def attach_url(
        self, container_id: str, *, tty: bool = False, stdin: bool = False, stdout: bool = False, stderr: bool = False
    ) -> str:
        """Prepare a streaming attach; tty must be the container's own setting. Return the URL."""
        request = api.AttachRequest(container_id=container_id, tty=tty, stdin=stdin, stdout=stdout, stderr=stderr)
        return (await self._call("Attach", request, api.AttachResponse)).url

    async def port_forward_url(self, sandbox_id: str, ports: Sequence[int] = ()) -> str:
        """Prepare streams to ports of a sandbox; return the URL."""
        request = api.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports)
        return (await self._call("PortForward", request, api.PortForwardResponse)).url

    async def container_stats(self, container_id: str) -> ContainerStats:
        """Read one container's use of resources. Raise NotFoundError."""
        request = api.ContainerStatsRequest(container_id=container_id)
        return (await self._call("ContainerStats", request, api.ContainerStatsResponse)).stats

    async def list_container_stats(
        self, *, container_id: str = "", sandbox_id: str = "", labels: Mapping[str, str] | None = None
    ) -> list[ContainerStats]:
        """List the use of resources of the running containers that meet every given condition."""
        selected = api.ContainerStatsFilter(id=container_id, pod_sandbox_id=sandbox_id, label_selector=labels)
        request = api.ListContainerStatsRequest(filter=selected)
        return list((await self._call("ListContainerStats", request, api.ListContainerStatsResponse)).stats)

    async def pod_sandbox_stats(self, sandbox_id: str) -> PodSandboxStats:
        """Read one sandbox's use of resources. Raise NotFoundError."""
        request = api.PodSandboxStatsRequest(pod_sandbox_id=sandbox_id)
        return (await self._call("PodSandboxStats", request, api.PodSandboxStatsResponse)).stats

    async def list_pod_sandbox_stats(
        self, *, sandbox_id: str = "", labels: Mapping[str, str] | None = None
    ) -> list[PodSandboxStats]:
        """List the use of resources of the sandboxes that meet every given condition."""
        selected = api.PodSandboxStatsFilter(id=sandbox_id, label_selector=labels)
        request = api.ListPodSandboxStatsRequest(filter=selected)
        return list((await self._call("ListPodSandboxStats", request, api.ListPodSandboxStatsResponse)).stats)

    async def list_metric_descriptors(self) -> list[MetricDescriptor]:
        """List what list_pod_sandbox_metrics can report. Raise UnimplementedError from older runtimes."""
        request = api.ListMetricDescriptorsRequest()
        return list((await self._call("ListMetricDescriptors", request, api.ListMetricDescriptorsResponse)).descriptors)

    async def list_pod_sandbox_metrics(self) -> list[PodSandboxMetrics]:
        """List the runtime's own metrics, by sandbox. Raise UnimplementedError from older runtimes."""
        request = api.ListPodSandboxMetricsRequest()
        return list((await self._call("ListPodSandboxMetrics", request, api.ListPodSandboxMetricsResponse)).pod_metrics)

    async def _call(self, rpc: str, request: Message, answer: type[R], deadline: float | None = -1.0) -> R:
        if deadline is not None and deadline < 0:
            deadline = self._timeout
        return await self._channel.unary(f"/runtime.v1.RuntimeService/{rpc}", request, answer, deadline)
