"""Client of one device plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.devices import messages as m
from agent.devices.pool import Device
from cri.channel import Channel
from cri.errors import CRIError
from cri.texts import shortened

_SERVICE = "/v1beta1.DevicePlugin"
DIAL_SECONDS, CALL_SECONDS = 10.0, 120.0


@dataclass(frozen=True, slots=True)
class Options:
    """Optional calls of a plugin."""

    pre_start: bool = False
    preferences: bool = False


class Plugin:
    """The plugin that serves one resource at a socket; errors are CRIError with the plugin's message."""

    def __init__(self, resource: str, socket: Path, options: Options | None = None) -> None:
        self.resource, self.socket = resource, socket
        self.options = options or Options()
        self._channel = Channel(str(socket))

    async def ready(self) -> None:
        """Wait until the plugin listens. Raise TimeoutError."""
        async with asyncio.timeout(DIAL_SECONDS):
            await self._channel.ready()

    async def ask_options(self) -> None:
        """Ask the plugin for its options, where its registration had none. Raise CRIError."""
        found = await self._channel.unary(
            f"{_SERVICE}/GetDevicePluginOptions", m.Empty(), m.DevicePluginOptions, CALL_SECONDS
        )
        self.options = Options(found.pre_start_required, found.get_preferred_allocation_available)

    async def devices(self) -> AsyncIterator[dict[str, Device]]:
        """Follow the plugin's devices, by ID, until it goes away. Raise CRIError."""
        async for answer in self._channel.stream(
            f"{_SERVICE}/ListAndWatch", m.Empty(), m.ListAndWatchResponse, deadline=None
        ):
            yield {
                found.ID: Device(found.health == "Healthy", tuple(sorted({node.ID for node in found.topology.nodes})))
                for found in answer.devices
            }

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        """Request the preferred ones of the available devices; `must` are always included. Raise CRIError."""
        request = m.PreferredAllocationRequest(
            container_requests=[
                m.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
                )
            ]
        )
        answer = await self._channel.unary(
            f"{_SERVICE}/GetPreferredAllocation", request, m.PreferredAllocationResponse, CALL_SECONDS
        )
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    async def allocate(self, ids: Sequence[str]) -> bytes:
        """Have devices made ready for a container; return the plugin's ContainerAllocateResponse. Raise CRIError."""
        request = m.AllocateRequest(container_requests=[m.ContainerAllocateRequest(devices_ids=ids)])
        answer = await self._channel.unary(f"{_SERVICE}/Allocate", request, m.AllocateResponse, CALL_SECONDS)
        if not answer.container_responses:
            raise CRIError(shortened(f"no containers in allocation response {answer}".strip()))
        return answer.container_responses[0].SerializeToString()

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Call PreStartContainer for a container with these devices. Raise CRIError."""
        request = m.PreStartContainerRequest(devices_ids=ids)
        await self._channel.unary(f"{_SERVICE}/PreStartContainer", request, m.PreStartContainerResponse, CALL_SECONDS)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()
