"""The fake's pod sandboxes; states, idempotence and messages are containerd's."""

from typing import Any

import grpc

from cri.fake.failures import RPCError
from cri.fake.processes import FakeSandbox, Processes
from cri.messages import (
    ContainerEventType,
    Namespace,
    NamespaceMode,
    PodSandbox,
    PodSandboxAttributes,
    PodSandboxConfig,
    PodSandboxState,
    PodSandboxStats,
    PodSandboxStatus,
    api,
)


class FakeSandboxes(Processes):
    """The sandbox half of RuntimeService."""

    async def run_pod_sandbox(self, request: Any) -> Any:
        """Answer RunPodSandbox."""
        meta = request.config.metadata
        name = f"{meta.name}_{meta.namespace}_{meta.uid}_{meta.attempt}"
        for sandbox_id, other in self.sandboxes.items():
            if other.config.metadata == meta:
                reserved = f'name "{name}" is reserved for "{sandbox_id}"'
                raise RPCError(grpc.StatusCode.UNKNOWN, f'failed to reserve sandbox name "{name}": {reserved}')
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
            raise RPCError(grpc.StatusCode.NOT_FOUND, "an error occurred when try to find sandbox: not found")
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

    async def list_pod_sandbox_stats(self, request: Any) -> Any:
        """Answer ListPodSandboxStats: which sandboxes are ready, without what they use."""
        stats = []
        for found in self.sandboxes.values():
            status = found.status
            if status.state == PodSandboxState.SANDBOX_READY:
                attributes = PodSandboxAttributes(id=status.id, metadata=status.metadata, labels=status.labels)
                stats.append(PodSandboxStats(attributes=attributes))
        return api.ListPodSandboxStatsResponse(stats=stats)
