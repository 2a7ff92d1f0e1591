"""Has a driver finish a volume's expansion on the node (agent/volumes/expansion.py)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.csi import secrets
from agent.volumes.csi_volume import Volume
from agent.volumes.expansion import Expanded, Expansion
from kube.api import core_v1
from kube.client import Client

if TYPE_CHECKING:
    from agent.csi.driver import CSIClient
    from agent.volumes.claims import BoundClaim


class DriverExpansion:
    """Expands volumes of drivers."""

    def __init__(self, client: Client, expansion: Expansion) -> None:
        self._client, self._expansion = client, expansion

    async def possible(self, driver: CSIClient) -> bool:
        """Return whether a driver expands volumes on the node."""
        from agent.csi.messages import Ability

        return await driver.can(Ability.EXPAND_VOLUME)

    async def finish(
        self, pod: core_v1.Pod, driver: CSIClient, volume: Volume, bound: BoundClaim, path: Path, staged: str
    ) -> None:
        """Have the driver finish an expansion; a failure is recorded, raised as VolumeError and retried later."""

        async def expand(size: int) -> None:
            await self._expand(driver, volume, size, path, staged)

        about = Expanded(volume.name, volume.unique_name, volume.block, volume.read_only)
        await self._expansion.finish(expand, pod, about, bound)

    async def _expand(self, driver: CSIClient, volume: Volume, size: int, path: Path, staged: str) -> None:
        from agent.csi import request

        secret = await secrets.read(self._client, volume.expand_secret)
        capability = request.capability(volume, tells_writers_apart=False)
        await driver.expand(volume.handle, str(path), size, capability, staged=staged, secrets=secret)
