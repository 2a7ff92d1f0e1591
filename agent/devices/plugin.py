"""Client of one device plugin."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agent.devices import messages as m
from agent.devices.pool import Device
from agent.list_budget import pair_bytes
from cri.channel import OF_PLUGINS, PLUGIN_DEVICES, Channel
from cri.errors import CRIError
from cri.texts import shortened

log = logging.getLogger(__name__)

_SERVICE = "/v1beta1.DevicePlugin"
DIAL_SECONDS, CALL_SECONDS = 10.0, 120.0
MOST_NODES = 64
"""NUMA nodes with lower IDs count, as in upstream's bit masks."""
LARGEST_RESPONSE, LARGEST_ANNOTATIONS = 256 << 10, 64 << 10
"""Bytes of a response for a container's devices, which the checkpoint has, and of its annotations, which the runtime lists."""


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
        self._channel = Channel(str(socket), options=OF_PLUGINS)

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
            if len(answer.devices) > PLUGIN_DEVICES:
                log.warning("%s: %d devices, the first %d count", self.resource, len(answer.devices), PLUGIN_DEVICES)
            yield {found.ID: _device(found) for found in islice(answer.devices, PLUGIN_DEVICES)}

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
        response = answer.container_responses[0]
        _check_size("response", response.ByteSize(), LARGEST_RESPONSE)
        annotations = sum(pair_bytes(key, text) for key, text in response.annotations.items())
        _check_size("annotations of the response", annotations, LARGEST_ANNOTATIONS)
        return response.SerializeToString()

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Call PreStartContainer for a container with these devices. Raise CRIError."""
        request = m.PreStartContainerRequest(devices_ids=ids)
        await self._channel.unary(f"{_SERVICE}/PreStartContainer", request, m.PreStartContainerResponse, CALL_SECONDS)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


def _device(found: m.Device) -> Device:
    nodes = {node.ID for node in islice(found.topology.nodes, MOST_NODES) if 0 <= node.ID < MOST_NODES}
    return Device(found.health == "Healthy", tuple(sorted(nodes)))


def _check_size(what: str, size: int, most: int) -> None:
    """Raise CRIError if something is too large."""
    if size > most:
        raise CRIError(f"{what} of {size} bytes, {most} bytes are allowed")
