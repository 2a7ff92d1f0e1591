"""Serves the pod resources API at pod-resources/kubelet.sock below the root directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from agent.container_manager.manager import ContainerManager
from agent.interfaces import PodView
from agent.unix_server import UnixServer

SERVICE = "v1.PodResourcesLister"
_ENDED = ("Succeeded", "Failed")


class PodResourcesServer:
    """Serves List, Get and GetAllocatableResources; `views` are the pods of this node."""

    def __init__(self, root: Path, managers: ContainerManager, views: Callable[[], Sequence[PodView]]) -> None:
        self._socket = root / "pod-resources" / "kubelet.sock"
        self._managers, self._views = managers, views

    async def run(self) -> None:
        """Serve until cancelled. Raise OSError if the socket cannot be made."""
        methods = {"List": self._list, "Get": self._get, "GetAllocatableResources": self._allocatable}
        async with UnixServer(self._socket, SERVICE, methods):
            await asyncio.Event().wait()

    async def _list(self, data: bytes, context: Any) -> bytes:
        from agent.podresources import messages, report  # with the first question only

        answer = messages.ListPodResourcesResponse()
        for pod in [view.pod for view in self._views() if view.pod.status.phase not in _ENDED]:
            answer.pod_resources.append(report.of_pod(self._managers, pod))
            await asyncio.sleep(0)  # large pods of all namespaces would be one long step
        return answer.SerializeToString()

    async def _get(self, data: bytes, context: Any) -> bytes:
        from agent.podresources import messages, report

        request = messages.GetPodResourcesRequest.FromString(data)
        for view in self._views():
            metadata = view.pod.metadata
            if (metadata.name, metadata.namespace) == (request.pod_name, request.pod_namespace):
                answer = messages.GetPodResourcesResponse(pod_resources=report.of_pod(self._managers, view.pod))
                return answer.SerializeToString()
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort raises")

    async def _allocatable(self, data: bytes, context: Any) -> bytes:
        from agent.podresources import report

        return report.allocatable(self._managers).SerializeToString()
