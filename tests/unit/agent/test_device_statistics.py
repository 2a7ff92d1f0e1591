"""Usage of block volumes: from their CSI driver, else the size of the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from agent.usage.model import Filesystem
from agent.volumes.claims import BoundClaim
from agent.volumes.csi_volume import Ready, Volume
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.persistent import PersistentVolumes
from kube.api import core_v1
from tests.support.clock import FakeClock

NAMES = ("disk", "local")
BODY = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "uid"},
    "spec": {"containers": [], "volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in NAMES]},
}
POD = msgspec.convert(BODY, core_v1.Pod)


class Claims:
    """The claim "disk" is bound to a volume of a driver, "local" to a device of the node."""

    async def read(self, pod: core_v1.Pod, volume: core_v1.Volume) -> BoundClaim:
        source: dict[str, Any] = {"local": {"path": "/dev/sdz"}}
        if volume.name == "disk":
            source = {"csi": {"driver": "d", "volumeHandle": "h"}}
        body = {"metadata": {"name": f"pv-{volume.name}"}, "spec": {"volumeMode": "Block", **source}}
        return BoundClaim(core_v1.PersistentVolumeClaim(), msgspec.convert(body, core_v1.PersistentVolume))


class CSI:
    async def set_up(self, pod: core_v1.Pod, volume: Volume, bound: BoundClaim | None) -> Ready:
        return Ready(Path("/dev/sdy"))

    async def volume_stats(self, pod: core_v1.Pod, volume: Volume, now: float) -> Filesystem | None:
        assert volume.block
        return Filesystem(now, 5 << 30, 0, 0, 0, 0, 0)


class Local:
    def __init__(self, device: Path) -> None:
        self.device = device

    async def set_up(self, pod: core_v1.Pod, persistent: core_v1.PersistentVolume, *, read_only: bool) -> MountedVolume:
        return MountedVolume(self.device, read_only, device=True)


class Anywhere:
    async def check(self, persistent: core_v1.PersistentVolume) -> None: ...


async def test_block_volumes_have_their_capacity_in_the_statistics(tmp_path: Path) -> None:
    device = tmp_path / "device"
    with device.open("wb") as file:
        file.truncate(3 << 20)
    claims: Any = Claims()
    csi: Any = CSI()
    nothing: Any = None
    anywhere: Any = Anywhere()
    volumes = PersistentVolumes(tmp_path, claims, nothing, anywhere, csi, clock=FakeClock())
    local: Any = Local(device)
    volumes._local = local
    for volume in POD.spec.volumes:
        await volumes.set_up(POD, volume)
    found = {
        use.name: (use.claim, use.filesystem.capacity, use.filesystem.used) for use in await volumes.volume_stats(POD)
    }
    assert found == {"disk": (("shop", "disk"), 5 << 30, 0), "local": (("shop", "local"), 3 << 20, 0)}
