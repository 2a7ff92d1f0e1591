"""A device plugin: a real gRPC server on a unix socket that registers itself as plugins do.

`async with device_plugin(folder, "example.com/gpu", {"a": "Healthy"}) as plugin:` registers with the agent whose
plugins' folder it is; `plugin.set(...)` changes its devices, `plugin.calls` is what the agent asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from agent.devices.wire import deviceplugin_pb2 as api
from tests.support.node import DEADLINE


class DevicePlugin:
    """One plugin; `nodes` places devices on NUMA nodes, `answer` is what Allocate gives a container."""

    def __init__(self, folder: Path, resource: str, devices: Mapping[str, str], **options: bool) -> None:
        self.folder, self.resource, self.options = folder, resource, options
        self.socket = folder / f"{resource.partition('/')[2][:3]}.sock"  # short, for the kernel's sake
        self.devices = dict(devices)
        self.nodes: dict[str, int] = {}
        self.answer: dict[str, Any] = {}
        self.preferred: list[str] = []
        self.fail = ""
        self.calls: list[tuple[str, list[str]]] = []
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None

    async def set(self, **devices: str) -> None:
        """Change devices' health; "" takes one away."""
        self.devices = {name: health for name, health in {**self.devices, **devices}.items() if health}
        async with self._changed:
            self._changed.notify_all()

    # -- what the agent calls -----------------------------------------------------------------------------------------
    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        while True:
            async with self._changed:
                yield api.ListAndWatchResponse(devices=[self._device(*item) for item in sorted(self.devices.items())])
                await self._changed.wait()

    def _device(self, name: str, health: str) -> Any:
        node = self.nodes.get(name)
        topology = None if node is None else api.TopologyInfo(nodes=[api.NUMANode(ID=node)])
        return api.Device(ID=name, health=health, topology=topology)

    async def _options(self, request: Any, context: Any) -> Any:
        self.calls.append(("GetDevicePluginOptions", []))
        return api.DevicePluginOptions(**self.options)

    async def _allocate(self, request: Any, context: Any) -> Any:
        ids = [name for one in request.container_requests for name in one.devices_ids]
        self.calls.append(("Allocate", ids))
        if self.fail:
            await context.abort(grpc.StatusCode.UNKNOWN, self.fail)
        answer = {"envs": {"DEVICES": ",".join(ids)}, **self.answer}
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(**answer)])

    async def _prefer(self, request: Any, context: Any) -> Any:
        self.calls.append(("GetPreferredAllocation", list(request.container_requests[0].available_deviceIDs)))
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=self.preferred)
        return api.PreferredAllocationResponse(container_responses=[answer])

    async def _pre_start(self, request: Any, context: Any) -> Any:
        self.calls.append(("PreStartContainer", list(request.devices_ids)))
        if self.fail:
            await context.abort(grpc.StatusCode.UNKNOWN, self.fail)
        return api.PreStartContainerResponse()

    # -- its life -----------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        unary = {
            "GetDevicePluginOptions": (self._options, api.Empty),
            "Allocate": (self._allocate, api.AllocateRequest),
            "GetPreferredAllocation": (self._prefer, api.PreferredAllocationRequest),
            "PreStartContainer": (self._pre_start, api.PreStartContainerRequest),
        }
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                method, request_deserializer=kind.FromString, response_serializer=lambda m: m.SerializeToString()
            )
            for name, (method, kind) in unary.items()
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._watch, response_serializer=lambda m: m.SerializeToString()
        )
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
        self._server.add_insecure_port(f"unix://{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def register(self, version: str = "v1beta1", resource: str = "") -> None:
        """Register at the agent's socket. Raise grpc.aio.AioRpcError where it refuses."""
        # Through a descriptor: the path may be longer than the kernel takes for a socket.
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            await self._register(f"unix:///proc/self/fd/{folder}/kubelet.sock", version, resource)
        finally:
            os.close(folder)

    async def _register(self, address: str, version: str, resource: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            request = api.RegisterRequest(
                version=version,
                endpoint=self.socket.name,
                resource_name=resource or self.resource,
                options=api.DevicePluginOptions(**self.options),
            )
            call = channel.unary_unary("/v1beta1.Registration/Register")
            await call(request.SerializeToString(), timeout=DEADLINE, wait_for_ready=True)


@contextlib.asynccontextmanager
async def device_plugin(
    folder: Path, resource: str, devices: Mapping[str, str], **options: bool
) -> AsyncIterator[DevicePlugin]:
    plugin = DevicePlugin(folder, resource, devices, **options)
    await plugin.start()
    try:
        await plugin.register()
        yield plugin
    finally:
        await plugin.stop()
