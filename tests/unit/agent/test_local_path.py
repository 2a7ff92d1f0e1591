"""Folders of local-path volumes: used and removed in their place, under their names, and nowhere else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.volumes import mounts
from agent.volumes.claims import BoundClaim
from agent.volumes.local import LocalVolumes
from agent.volumes.local_path import LocalPathVolumes
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.payload import VolumeError
from kube.api import core_v1, meta_v1
from kube.volume_binding import LOCAL_PATH_PROVISIONER, PROVISIONED_BY

NAME = "pvc-01234567-89ab-cdef-0123-456789abcdef"
POD = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="pod", namespace="shop", uid="pod-uid"))


def volume(path: Path | str, provisioner: str = LOCAL_PATH_PROVISIONER, mode: str = "") -> core_v1.PersistentVolume:
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=NAME, annotations={PROVISIONED_BY: provisioner} if provisioner else {}),
        spec=core_v1.PersistentVolumeSpec(
            local=core_v1.LocalVolumeSource(path=str(path)), volume_mode=mode or "Filesystem"
        ),
    )


def claimed(*args: Any, **options: Any) -> BoundClaim:
    """Return a claim with a volume as `volume` makes it."""
    return BoundClaim(core_v1.PersistentVolumeClaim(), volume(*args, **options))


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> dict[Path, str]:
    """Record bind mounts, as target and path of the descriptor, instead of mounting."""
    made: dict[Path, str] = {}

    def bind(descriptor: int, target: Path) -> None:
        assert target.is_dir()
        made[target] = os.readlink(f"/proc/self/fd/{descriptor}")

    monkeypatch.setattr(mounts, "bind_descriptor", bind)
    monkeypatch.setattr(mounts, "has_mount", lambda path: path in made)
    return made


@pytest.fixture
def provisioned(tmp_path: Path) -> LocalPathVolumes:
    return LocalPathVolumes(tmp_path / "local-path")


@pytest.fixture
def local(tmp_path: Path, provisioned: LocalPathVolumes) -> LocalVolumes:
    return LocalVolumes(tmp_path / "pods", provisioned)


def test_a_volumes_folder_is_made_for_everybody_and_removed_with_what_is_in_it(
    tmp_path: Path, provisioned: LocalPathVolumes
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("keep")
    folder = provisioned.folder / NAME
    os.close(provisioned.open(NAME))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    folder.chmod(0o2770)
    (folder / "link").symlink_to(outside)
    (folder / "file").write_text("x")
    os.close(provisioned.open(NAME))
    assert (folder / "file").exists() and stat.S_IMODE(folder.stat().st_mode) == 0o2770
    provisioned.remove(NAME)
    provisioned.remove(NAME)
    assert not folder.exists() and outside.read_text() == "keep"


@pytest.mark.parametrize("name", ["..", "pvc-x", f"{NAME}/..", "", f"../{NAME}", f"{NAME}\n"])
def test_other_names_are_neither_used_nor_removed(tmp_path: Path, provisioned: LocalPathVolumes, name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        provisioned.remove(name)
    with pytest.raises(VolumeError, match="not a local-path volume of this node"):
        provisioned.includes(volume(f"{provisioned.folder}/{name}"))
    assert not list(tmp_path.iterdir())


def test_a_link_in_a_volumes_place_is_not_followed(tmp_path: Path, provisioned: LocalPathVolumes) -> None:
    provisioned.folder.mkdir()
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (provisioned.folder / NAME).symlink_to(target)
    with pytest.raises(VolumeError, match="goes through a link"):
        provisioned.open(NAME)
    with pytest.raises(Exception, match="is a link"):
        provisioned.remove(NAME)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_the_folder_of_all_volumes_may_be_a_link_of_the_administrators(
    tmp_path: Path, provisioned: LocalPathVolumes
) -> None:
    (tmp_path / "disk").mkdir()
    provisioned.folder.symlink_to(tmp_path / "disk")
    os.close(provisioned.open(NAME))
    assert (tmp_path / "disk" / NAME).is_dir()
    provisioned.remove(NAME)
    assert not list((tmp_path / "disk").iterdir())


async def test_a_provisioned_folder_is_created_and_bound_by_its_descriptor(
    local: LocalVolumes, provisioned: LocalPathVolumes, bound: dict[Path, str], tmp_path: Path
) -> None:
    target = tmp_path / "pods/pod-uid/volumes/kubernetes.io~local-volume" / NAME
    for _ in range(2):
        mounted = await local.set_up(POD, claimed(provisioned.folder / NAME), read_only=True)
        assert mounted == MountedVolume(target, read_only=True)
        assert bound == {target: str(provisioned.folder / NAME)}


@pytest.mark.parametrize("below", ["pvc-x", f"{NAME}/{NAME}", f"../{NAME}", f"../pods/{NAME}"])
async def test_a_provisioned_volume_outside_the_nodes_folder_is_refused(
    local: LocalVolumes, provisioned: LocalPathVolumes, bound: dict[Path, str], tmp_path: Path, below: str
) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / NAME).symlink_to("/")  # as a pod makes one in its own volume
    with pytest.raises(VolumeError, match=f"not a local-path volume of this node: those are in {provisioned.folder}"):
        await local.set_up(POD, claimed(provisioned.folder / below), read_only=False)
    assert not bound and not provisioned.folder.exists()


async def test_a_link_in_the_place_of_a_provisioned_volume_is_not_mounted(
    local: LocalVolumes, provisioned: LocalPathVolumes, bound: dict[Path, str]
) -> None:
    provisioned.folder.mkdir()
    (provisioned.folder / NAME).symlink_to("/")
    with pytest.raises(VolumeError, match="goes through a link"):
        await local.set_up(POD, claimed(provisioned.folder / NAME), read_only=False)
    (provisioned.folder / NAME).unlink()
    (provisioned.folder / NAME).touch()
    with pytest.raises(VolumeError, match="must be a directory"):
        await local.set_up(POD, claimed(provisioned.folder / NAME), read_only=False)
    assert not bound


async def test_an_administrators_volume_may_be_any_folder_and_lead_through_links(
    local: LocalVolumes, bound: dict[Path, str], tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    for provisioner in ("", "rancher.io/local-path"):
        mounted = await local.set_up(POD, claimed(tmp_path / "link", provisioner), read_only=False)
        assert mounted == MountedVolume(tmp_path / "link")
    with pytest.raises(VolumeError, match="does not exist"):
        await local.set_up(POD, claimed(tmp_path / "none", ""), read_only=False)
    assert not bound


async def test_a_provisioned_folder_is_no_device(local: LocalVolumes, provisioned: LocalPathVolumes) -> None:
    os.close(provisioned.open(NAME))
    with pytest.raises(VolumeError, match="is not a block device"):
        await local.set_up(POD, claimed(provisioned.folder / NAME, mode="Block"), read_only=False)
