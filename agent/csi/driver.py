"""Client of one CSI driver on its socket, a method for each call; deadlines are upstream's two minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.message import Message

from agent.csi.messages import Ability, VolumeCapability, api
from cri.channel import OF_PLUGINS, Channel

CALL_SECONDS = 120.0
R = TypeVar("R", bound=Message)


class CSIClient:
    """The node service of a driver; every call raises CRIError with the driver's own message."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name, self.endpoint = name, endpoint
        self._channel = Channel(endpoint, options=OF_PLUGINS)
        self._abilities: frozenset[int] | None = None

    async def info(self) -> api.NodeGetInfoResponse:
        """Ask what the driver calls this node, how many volumes it can have, and where it is."""
        return await self._call("NodeGetInfo", api.NodeGetInfoRequest(), api.NodeGetInfoResponse)

    async def can(self, ability: int) -> bool:
        """Return whether the driver has an optional capability (a value of Ability.Type); the driver is called once."""
        if self._abilities is None:
            request = api.NodeGetCapabilitiesRequest()
            answer = await self._call("NodeGetCapabilities", request, api.NodeGetCapabilitiesResponse)
            self._abilities = frozenset(c.rpc.type for c in answer.capabilities if c.HasField("rpc"))
        return ability in self._abilities

    async def stages(self) -> bool:
        return await self.can(Ability.STAGE_UNSTAGE_VOLUME)

    async def stage(
        self,
        handle: str,
        path: str,
        capability: VolumeCapability,
        *,
        context: Mapping[str, str],
        published: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> None:
        """Stage the volume on the node; `published` is the publish context from attaching it."""
        request = api.NodeStageVolumeRequest(
            volume_id=handle,
            publish_context=published,
            staging_target_path=path,
            volume_capability=capability,
            secrets=secrets,
            volume_context=context,
        )
        await self._call("NodeStageVolume", request, api.NodeStageVolumeResponse)

    async def unstage(self, handle: str, path: str) -> None:
        request = api.NodeUnstageVolumeRequest(volume_id=handle, staging_target_path=path)
        await self._call("NodeUnstageVolume", request, api.NodeUnstageVolumeResponse)

    async def publish(
        self,
        handle: str,
        target: str,
        capability: VolumeCapability,
        *,
        staged: str,
        read_only: bool,
        context: Mapping[str, str],
        published: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> None:
        """Publish the volume to a pod; `staged` is its staging path, "" where it is not staged."""
        request = api.NodePublishVolumeRequest(
            volume_id=handle,
            publish_context=published,
            staging_target_path=staged,
            target_path=target,
            volume_capability=capability,
            readonly=read_only,
            secrets=secrets,
            volume_context=context,
        )
        await self._call("NodePublishVolume", request, api.NodePublishVolumeResponse)

    async def unpublish(self, handle: str, target: str) -> None:
        request = api.NodeUnpublishVolumeRequest(volume_id=handle, target_path=target)
        await self._call("NodeUnpublishVolume", request, api.NodeUnpublishVolumeResponse)

    async def expand(
        self,
        handle: str,
        path: str,
        size: int,
        capability: VolumeCapability,
        *,
        staged: str,
        secrets: Mapping[str, str],
    ) -> int:
        """Let the file system at `path` fill the volume's new size in bytes; return the size it has now, 0 if unsaid."""
        request = api.NodeExpandVolumeRequest(
            volume_id=handle,
            volume_path=path,
            capacity_range=api.CapacityRange(required_bytes=size),
            staging_target_path=staged,
            volume_capability=capability,
            secrets=secrets,
        )
        return (await self._call("NodeExpandVolume", request, api.NodeExpandVolumeResponse)).capacity_bytes

    async def statistics(self, handle: str, path: str, staged: str = "") -> api.NodeGetVolumeStatsResponse:
        """Ask how full the volume is."""
        request = api.NodeGetVolumeStatsRequest(volume_id=handle, volume_path=path, staging_target_path=staged)
        return await self._call("NodeGetVolumeStats", request, api.NodeGetVolumeStatsResponse)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _call(self, rpc: str, request: Message, answer: type[R]) -> R:
        return await self._channel.unary(f"/csi.v1.Node/{rpc}", request, answer, CALL_SECONDS)
