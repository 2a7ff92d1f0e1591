"""Requests to drivers about volumes, accepted registrations, and state restored from disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.csi import csi_driver, request
from agent.csi.drivers import CSIDrivers
from agent.csi.layout import Layout
from agent.csi.messages import AccessMode
from agent.plugins.handler import PluginError
from agent.usage import volume_metrics
from agent.usage.model import CPU, Filesystem, Memory, NodeUse, PersistentUse, PodUse, Snapshot
from agent.volumes.csi_volume import Volume, of_persistent
from agent.volumes.payload import VolumeError
from kube.api import core_v1, storage_v1


def volume(**changes: object) -> Volume:
    return Volume(**{"name": "pv", "driver": "d", "handle": "h", "pod_volume": "data", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "plain", "told_apart"),
    [
        ("ReadWriteOnce", AccessMode.SINGLE_NODE_WRITER, AccessMode.SINGLE_NODE_MULTI_WRITER),
        ("ReadWriteOncePod", AccessMode.SINGLE_NODE_WRITER, AccessMode.SINGLE_NODE_SINGLE_WRITER),
        ("ReadOnlyMany", AccessMode.MULTI_NODE_READER_ONLY, AccessMode.MULTI_NODE_READER_ONLY),
        ("ReadWriteMany", AccessMode.MULTI_NODE_MULTI_WRITER, AccessMode.MULTI_NODE_MULTI_WRITER),
    ],
)
def test_access_modes_are_sent_in_the_form_that_the_driver_supports(mode: str, plain: int, told_apart: int) -> None:
    for apart, wanted in ((False, plain), (True, told_apart)):
        found = request.capability(volume(access_mode=mode), tells_writers_apart=apart)
        assert found.access_mode.mode == wanted


def test_a_block_volume_has_no_file_system_and_a_group_goes_along_where_the_driver_sees_to_it() -> None:
    assert request.capability(volume(block=True, fs_type="ext4"), tells_writers_apart=False).HasField("block")
    found = request.capability(volume(fs_type="xfs", mount_options=("noatime",)), tells_writers_apart=False, group=7)
    assert (found.mount.fs_type, list(found.mount.mount_flags), found.mount.volume_mount_group) == (
        "xfs",
        ["noatime"],
        "7",
    )


@pytest.mark.parametrize(
    ("policy", "changes", "wants"),
    [
        ("File", {}, True),
        ("File", {"read_only": True}, False),
        ("None", {"fs_type": "ext4"}, False),
        ("ReadWriteOnceWithFSType", {"fs_type": "ext4"}, True),
        (None, {"fs_type": "ext4"}, True),
        (None, {"fs_type": "ext4", "for_one_node": False}, False),
        (None, {}, False),
    ],
)
def test_files_are_given_to_a_group_by_the_drivers_policy(
    policy: str | None, changes: dict[str, object], wants: bool
) -> None:
    assert request.wants_group(policy, volume(**changes)) is wants


@pytest.mark.parametrize(
    ("modes", "one_node"),
    [
        (["ReadWriteOnce"], True),
        (["ReadOnlyMany", "ReadWriteOncePod"], True),
        (["ReadWriteMany"], False),
        (["ReadOnlyMany", "ReadWriteMany"], False),
    ],
)
def test_a_group_depends_on_all_access_modes_of_a_volume(modes: list[str], one_node: bool) -> None:
    spec = {"accessModes": modes, "csi": {"driver": "d", "volumeHandle": "h", "fsType": "ext4"}}
    persistent = msgspec.convert({"metadata": {"name": "pv"}, "spec": spec}, core_v1.PersistentVolume)
    found = of_persistent(persistent, "data", read_only=False)
    assert (found.access_mode, request.wants_group(None, found)) == (modes[0], one_node)


@pytest.mark.parametrize(
    ("ephemeral", "modes", "problem"),
    [
        (False, None, ""),
        (True, None, "(no CSIDriver object)"),
        (False, [], ""),
        (True, [], '(only supports ["Persistent"])'),
        (False, ["Ephemeral"], '(only supports ["Ephemeral"])'),
        (True, ["Persistent", "Ephemeral"], ""),
    ],
)
def test_volumes_of_a_mode_that_the_driver_does_not_support_are_refused(
    ephemeral: bool, modes: list[str] | None, problem: str
) -> None:
    about = None
    if modes is not None:
        about = msgspec.convert(
            {"metadata": {"name": "d"}, "spec": {"volumeLifecycleModes": modes}}, storage_v1.CSIDriver
        )
    if not problem:
        csi_driver.check_lifecycle_mode("d", about, ephemeral=ephemeral)
        return
    with pytest.raises(VolumeError) as raised:
        csi_driver.check_lifecycle_mode("d", about, ephemeral=ephemeral)
    mode = "Ephemeral" if ephemeral else "Persistent"
    assert str(raised.value) == (
        "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: "
        f'volume mode "{mode}" not supported by driver d {problem}'
    )


@pytest.mark.parametrize("versions", [["1.0.0"], ["0.3.0", "1.9.0"], ["v1.2"]])
def test_drivers_of_version_1_are_taken(versions: list[str]) -> None:
    CSIDrivers(None).validate("d", "/csi.sock", versions)  # type: ignore[arg-type]


@pytest.mark.parametrize("versions", [[], ["0.3.0"], ["2.0.0"], ["nonsense"]])
def test_drivers_of_other_versions_are_refused(versions: list[str]) -> None:
    with pytest.raises(PluginError, match="none of the CSI versions reported by this driver are supported"):
        CSIDrivers(None).validate("d", "/csi.sock", versions)  # type: ignore[arg-type]


def test_what_was_begun_is_known_from_disk_and_forgotten_when_it_is_undone(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "pods")
    files, disk = volume(), volume(name="disk", handle="h2", block=True)
    for one in (files, disk):
        layout.write_staging_data(one)
        layout.write_pod_data("uid", one, "node", "csi-x" if one is files else "")
    known = Layout(tmp_path, tmp_path / "pods")
    found = {published.name: published for published in known.all_published()}
    assert found.keys() == {"pv", "disk"}
    assert (found["pv"].handle, found["pv"].attached, found["pv"].ephemeral) == ("h", True, False)
    assert (found["disk"].block, found["disk"].attached) == (True, False)
    assert found["disk"].target == layout.target("uid", disk)
    assert {(s.handle, s.target) for s in known.staged()} == {
        ("h", layout.staging(files)),
        ("h2", layout.staging(disk)),
    }
    for published in found.values():
        known.forget_published(published)
    for staged in known.staged():
        known.forget_staged(staged)
    assert not list(known.all_published()) and not known.staged()
    assert not layout.device_link("uid", "disk").is_symlink()


def test_a_note_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def note(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def called(*arguments: Any) -> None:
            steps.append(name)
            call(*arguments)

        return called

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, note(name, getattr(os, name)))
    Layout(tmp_path, tmp_path / "pods").write_staging_data(volume())
    assert steps == ["fsync", "replace"], "or a power cut leaves an empty one"


def test_a_note_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "pods")
    layout.write_pod_data("uid", volume(), "node", "")
    layout.data_file_of("uid", volume()).write_text('{"half')
    assert layout.published("uid") == []


def test_a_claims_figures_are_shown_once_however_many_pods_use_it() -> None:
    use = PersistentUse("data", ("shop", "claim"), Filesystem(0.0, 100, 60, 40, 10, 7, 3))
    own = PersistentUse("inline", None, Filesystem(0.0, 1, 1, 1, 1, 1, 1))
    pods = tuple(PodUse(name, "shop", name, 0.0, (), None, None, (), 0, (), (use, own)) for name in ("first", "second"))
    disk = Filesystem(0.0, 0, 0, 0, 0, 0, 0)
    node = NodeUse("n", 0.0, CPU(0.0, 0), Memory(0.0, *(0,) * 6), (), disk, disk, 0, 0)
    lines = [line for line in volume_metrics.text(Snapshot(node, pods)).splitlines() if not line.startswith("#")]
    labels = '{namespace="shop",persistentvolumeclaim="claim"}'
    assert f"kubelet_volume_stats_used_bytes{labels} 40" in lines
    assert f"kubelet_volume_stats_inodes_free{labels} 7" in lines
    assert len(lines) == 6
    assert volume_metrics.text(Snapshot(node, ())) == ""
