"""Claims of volumes in use: intervals of reading them, and of setting up local volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.volumes import claimed_volumes, csi_volume, mounts
from agent.volumes.claimed_volumes import VolumeSetUp
from agent.volumes.claims import BoundClaim
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.payload import VolumeError
from agent.volumes.persistent import PersistentVolumes
from kube.api import core_v1
from tests.support.clock import FakeClock


def pod(uid: str, *claims: str, **container: Any) -> core_v1.Pod:
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)]
    spec = {"containers": [{"name": "c", **container}], "volumes": volumes}
    return msgspec.convert({"metadata": {"name": uid, "namespace": "shop", "uid": uid}, "spec": spec}, core_v1.Pod)


class Claims:
    """Each claim is bound to a local volume of its name, but for "csi-..." and "host-..."; "missing" is none."""

    def __init__(self, mode: str = "Filesystem") -> None:
        self.read_names, self.mode, self.annotations = list[str](), mode, dict[str, str]()

    async def read(self, pod: core_v1.Pod, volume: core_v1.Volume) -> BoundClaim:
        assert volume.persistent_volume_claim is not None
        name = volume.persistent_volume_claim.claim_name
        self.read_names.append(name)
        if name == "missing":
            raise VolumeError("no claim")
        sources: dict[str, dict[str, Any]] = {
            "csi": {"csi": {"driver": "d", "volumeHandle": name}},
            "host": {"hostPath": {"path": "/tmp"}},
        }
        source = sources.get(name.partition("-")[0], {"local": {"path": f"/{name}"}})
        metadata = {"name": name, "annotations": self.annotations}
        body = {"metadata": metadata, "spec": {"volumeMode": self.mode, **source}}
        return BoundClaim(core_v1.PersistentVolumeClaim(), msgspec.convert(body, core_v1.PersistentVolume))


class Local:
    def __init__(self) -> None:
        self.made = list[str]()

    async def set_up(self, pod: core_v1.Pod, bound: BoundClaim, *, read_only: bool) -> MountedVolume:
        self.made.append(bound.persistent.metadata.name or "")
        if self.made[-1] == "gone":
            raise VolumeError("no such folder", step="MapVolume", name="gone")
        return MountedVolume(Path("/") / self.made[-1], read_only)

    def forget(self, uid: str) -> None: ...


class Anywhere:
    async def check(self, persistent: core_v1.PersistentVolume) -> None: ...


class Drivers:
    """A CSI driver that requires each volume to be published again after a minute, but for those that may only grow."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    async def set_up(self, pod: core_v1.Pod, volume: csi_volume.Volume, bound: BoundClaim) -> csi_volume.Ready:
        return csi_volume.Ready(
            Path("/") / volume.handle, self._clock.now().timestamp() + 60, "grows" not in volume.handle
        )


class Node:
    """Sets up all volumes of pods, one round each time."""

    def __init__(self, mode: str = "Filesystem") -> None:
        self.clock, self.claims, self.local = FakeClock(), Claims(mode), Local()
        nothing: Any = None
        claims: Any = self.claims
        anywhere: Any = Anywhere()
        local: Any = self.local
        csi: Any = Drivers(self.clock)
        self.volumes = PersistentVolumes(Path("/pods"), claims, nothing, anywhere, csi, clock=self.clock)
        self.volumes._local = local

    async def set_up(self, pod: core_v1.Pod) -> float:
        """Return the seconds until the next round."""
        found, again = VolumeSetUp(pod), list[float]()
        for volume in pod.spec.volumes:
            mounted, at = await self.volumes.set_up(pod, volume, found)
            assert volume.persistent_volume_claim is not None and at is not None
            assert mounted.path == Path("/") / volume.persistent_volume_claim.claim_name
            again.append(at - self.clock.now().timestamp())
        return min(again)


async def test_a_claim_that_many_volumes_of_a_pod_name_is_read_and_set_up_once() -> None:
    node = Node()
    await node.set_up(pod("a", *["data"] * 50, "other"))
    assert node.claims.read_names == node.local.made == ["data", "other"]


@pytest.mark.parametrize("claim", ["data", "csi-data", "host-data"])
async def test_processes_of_a_pod_get_the_group_in_the_annotation_of_its_volume(claim: str) -> None:
    node, user = Node(), pod("p", claim)
    node.claims.annotations = {"pv.beta.kubernetes.io/gid": "777"}
    for _ in range(2):  # the second time it is not set up again
        mounted, _ = await node.volumes.set_up(user, user.spec.volumes[0])
        assert mounted.group == 777


async def test_a_local_volume_is_set_up_again_when_it_is_due_and_not_at_each_change_of_the_pod() -> None:
    node = Node()
    assert await node.set_up(pod("a", "data")) == 60
    await node.clock.advance(29)
    assert await node.set_up(pod("a", "data")) == pytest.approx(31)
    assert len(node.local.made) == 1
    await node.clock.advance(1)
    assert await node.set_up(pod("a", "data")) == 60
    assert len(node.local.made) == 2
    node.volumes.forget("a")
    await node.set_up(pod("a", "data"))
    assert len(node.local.made) == 3


async def test_claims_of_many_pods_are_read_again_less_often() -> None:
    node = Node()
    for number in range(40):
        last = await node.set_up(pod(f"p{number}", *[f"c{n}" for n in range(50)]))
    assert last == pytest.approx(1951 / claimed_volumes.CHECKS_A_SECOND)
    for number in range(39):
        node.volumes.forget(f"p{number}")
    await node.clock.advance(last)
    assert await node.set_up(pod("p39", *[f"c{n}" for n in range(50)])) == 60


@pytest.mark.parametrize("kind", ["local", "host"])
async def test_volumes_of_drivers_are_published_as_often_as_they_request_next_to_many_claims(kind: str) -> None:
    node = Node()
    for number in range(40):
        for volume in (many := pod(f"p{number}", *[f"{kind}-{n}" for n in range(50)])).spec.volumes:
            await node.volumes.set_up(many, volume)
    for _ in range(2):
        assert await node.set_up(pod("a", "csi-1")) == pytest.approx(60)
        await node.clock.advance(60)
    assert await node.set_up(pod("b", "csi-grows")) == pytest.approx(200 if kind == "local" else 60, abs=1)


async def test_claims_that_are_never_read_again_do_not_lengthen_the_interval_of_others() -> None:
    node = Node()
    for number in range(40):
        for volume in (many := pod(f"p{number}", *[f"host-{n}" for n in range(50)])).spec.volumes:
            await node.volumes.set_up(many, volume)
    assert await node.set_up(pod("a", "data")) == 60


async def test_a_local_volume_that_cannot_be_set_up_is_tried_once_for_all_volumes_that_name_it() -> None:
    node, many = Node(), pod("a", *["gone"] * 50)
    found = VolumeSetUp(many)
    for volume in many.spec.volumes:
        with pytest.raises(VolumeError, match="no such folder") as caught:
            await node.volumes.set_up(many, volume, found)
        assert (caught.value.step, caught.value.name) == ("MapVolume", "gone")
    assert node.local.made == ["gone"]


async def test_a_claim_that_cannot_be_read_fails_each_of_its_volumes() -> None:
    node, many = Node(), pod("a", "missing", "missing")
    found = VolumeSetUp(many)
    for volume in many.spec.volumes:
        with pytest.raises(VolumeError, match="no claim"):
            await node.volumes.set_up(many, volume, found)
    assert node.claims.read_names == ["missing"]


@pytest.mark.parametrize(
    ("mode", "container", "message"),
    [
        ("Block", {"volumeMounts": [{"name": "v0", "mountPath": "/d"}]}, "has volumeMode Block"),
        ("Filesystem", {"volumeDevices": [{"name": "v0", "devicePath": "/d"}]}, "has volumeMode Filesystem"),
        ("Block", {"volumeDevices": [{"name": "v0", "devicePath": "/d"}]}, ""),
        ("Filesystem", {"volumeMounts": [{"name": "v0", "mountPath": "/d"}]}, ""),
    ],
)
async def test_a_volume_is_used_by_its_mode(mode: str, container: dict[str, Any], message: str) -> None:
    node, made = Node(mode), pod("a", "data", **container)
    if not message:
        await node.set_up(made)
        return
    with pytest.raises(VolumeError, match=f"^volume v0 {message}, but is specified in "):
        await node.set_up(made)


def test_mounts_are_known_by_the_kernels_ids(tmp_path: Path) -> None:
    for point in ("/proc", "/sys"):
        assert mounts.has_mount(Path(point)) == mounts.is_mount_point(Path(point))
    (tmp_path / "link").symlink_to("/proc")
    assert not any(mounts.has_mount(path) for path in (tmp_path, tmp_path / "none", tmp_path / "link"))
