"""A volume stays on the node and in use as long as a pod may have it, by notes that can be read and by the kernel's mounts."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import threads
from agent.csi.attachments import Attachments
from agent.csi.layout import Layout
from agent.csi.volumes import CSIVolumes
from agent.volumes import mounts
from agent.volumes.cleanup import CleanupError
from agent.volumes.csi_volume import Volume
from cri.errors import CRIError
from kube.api import core_v1
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI

VOLUME = Volume(name="pv", driver="d", handle="h", pod_volume="data")
OTHER = Volume(name="other", driver="d", handle="h2", pod_volume="data")


class CSIClient:
    """Notes which volumes are unstaged and unpublished."""

    def __init__(self) -> None:
        self.unstaged: list[str] = []
        self.refused = 0
        self.refuses = False

    async def unstage(self, handle: str, path: str) -> None:
        if self.refuses:
            self.refused += 1
            raise CRIError("busy", code="INTERNAL")
        self.unstaged.append(handle)

    async def unpublish(self, handle: str, target: str) -> None:
        return None

    def find(self, name: str) -> CSIClient:
        return self


class Node:
    """An agent that starts anew on a node where pod "uid" has a volume."""

    def __init__(self, root: Path) -> None:
        self.api, self.driver, self.layout = LaggingAPI(), CSIClient(), Layout(root, root / "pods")
        self.data_file, self.pod_dir = self.layout.data_file_of("uid", VOLUME), root / "pods" / "uid"
        self.attachments = Attachments(self.api.client(), "node", request_report=lambda: None, clock=FakeClock())
        self.clock = FakeClock()
        nothing: Any = None
        drivers: Any = self.driver
        self.volumes = CSIVolumes(nothing, drivers, self.attachments, self.layout, nothing, nothing, clock=self.clock)
        self.begin("uid", VOLUME)

    def begin(self, uid: str, volume: Volume) -> None:
        self.layout.write_staging_data(volume)
        self.layout.write_pod_data(uid, volume, "node", "csi-x")

    @property
    def kept(self) -> bool:
        """True if the pod's volume is on the node still and in use."""
        return "h" not in self.driver.unstaged and VOLUME.unique_name in self.attachments.in_use()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def unreadable(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Path]]:
    """Paths that the agent has no descriptors left for."""
    paths: set[Path] = set()
    reads, listings = Path.read_bytes, os.listdir

    def read_bytes(self: Path) -> bytes:
        if self in paths:
            raise OSError(errno.EMFILE, "Too many open files")
        return reads(self)

    def listdir(path: Any) -> list[str]:
        if Path(path) in paths:
            raise OSError(errno.EMFILE, "Too many open files")
        return listings(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    monkeypatch.setattr(os, "listdir", listdir)
    yield paths


async def test_a_volume_stays_while_its_note_or_the_folder_of_it_cannot_be_read(
    node: Node, unreadable: set[Path]
) -> None:
    await node.volumes.restore()
    for path in (node.data_file, node.data_file.parent.parent, node.pod_dir.parent):
        unreadable.add(path)
        await node.volumes.sweep()
        assert node.kept, path
        unreadable.clear()
    unreadable.add(node.data_file)
    with pytest.raises(CleanupError, match="Too many open files"):
        await node.volumes.release("uid")
    assert node.kept


async def test_files_of_a_volume_are_removed_for_the_pod_that_leaves(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, real = list[threads.Owner | None](), threads.call

    async def call(*args: Any, owner: threads.Owner | None = None) -> Any:
        owners.append(owner)
        return await real(*args, owner=owner)

    monkeypatch.setattr(threads, "call", call)
    owner = threads.Owner("uid", "n")
    await node.volumes.restore()
    await node.volumes.release("uid", owner)
    assert node.driver.unstaged == ["h"] and owners == [owner, owner]


async def test_a_pod_does_not_wait_for_a_volume_that_cannot_be_unstaged_which_is_retried(node: Node) -> None:
    node.driver.refuses = True
    await node.volumes.restore()
    await node.volumes.release("uid")
    assert node.kept and not node.data_file.exists(), "the pod has it no more"
    for pause in (0.5, 1, 2):
        await node.clock.sleeping()
        before = node.driver.refused
        await node.clock.advance(pause)
        await node.clock.sleeping()  # with the next pause
        assert node.driver.refused == before + 1
    assert node.kept, "it is not detached either"
    node.driver.refuses = False
    await node.clock.advance(4)
    while node.attachments.in_use():
        await asyncio.sleep(0)
    assert node.driver.unstaged == ["h"]


async def test_a_volume_that_was_being_unstaged_is_in_use_for_the_next_agent(node: Node) -> None:
    """Its attachment would be deleted while the driver still has it mounted."""
    await node.volumes.restore()
    node.driver.refuses = True
    await node.volumes.release("uid")
    await node.volumes.close()
    attachments = Attachments(node.api.client(), "node", request_report=lambda: None, clock=node.clock)
    drivers: Any = node.driver
    nothing: Any = None
    volumes = CSIVolumes(nothing, drivers, attachments, node.layout, nothing, nothing, clock=node.clock)
    await volumes.restore()
    assert attachments.in_use() == [VOLUME.unique_name]
    node.driver.refuses = False
    await volumes.sweep()
    assert node.driver.unstaged == ["h"] and attachments.in_use() == []


async def test_a_damaged_note_keeps_all_volumes_until_its_pod_is_gone(node: Node) -> None:
    await node.volumes.restore()
    node.begin("another", OTHER)
    for damage in ("", '{"half', "[]", "{}"):
        node.data_file.write_text(damage)
        await node.volumes.sweep()
        assert node.kept, damage
        await node.volumes.release("another")
        assert node.driver.unstaged == []
    node.data_file.unlink()  # as the pod's folder is removed
    await node.volumes.sweep()
    assert sorted(node.driver.unstaged) == ["h", "h2"] and node.attachments.in_use() == []


async def test_after_a_restart_missing_volume_state_is_restored_from_staging_and_the_nodes_status(node: Node) -> None:
    reported = "kubernetes.io/csi/other.driver^unstaged"
    status = {"volumesInUse": [reported, "kubernetes.io/nfs/x"]}
    node.api.put(msgspec.convert({"metadata": {"name": "node"}, "status": status}, core_v1.Node))
    node.data_file.write_text('{"half')
    await node.volumes.restore()
    assert node.attachments.in_use() == sorted([VOLUME.unique_name, reported])
    node.data_file.unlink()
    await node.volumes.sweep()
    assert node.attachments.in_use() == []


async def test_an_agent_starts_without_the_api_server_though_a_note_is_damaged(node: Node) -> None:
    node.data_file.write_text('{"half')
    node.api.go_away()
    await node.volumes.restore()
    assert node.attachments.in_use() == [VOLUME.unique_name]


async def test_a_damaged_staging_note_keeps_its_own_volume_and_no_other(node: Node) -> None:
    node.begin("another", OTHER)
    await node.volumes.restore()
    (node.layout.staging(VOLUME).parent / "vol_data.json").write_text("")
    await node.volumes.release("uid")
    await node.volumes.release("another")
    assert node.driver.unstaged == ["h2"] and node.attachments.in_use() == [VOLUME.unique_name]


async def test_no_lock_is_kept_of_a_volume_that_is_gone(node: Node) -> None:
    def locks() -> int:
        gc.collect()
        return sum(isinstance(found, asyncio.Lock) for found in gc.get_objects())

    await node.volumes.restore()
    before = locks()
    for number in range(20):
        node.begin(f"pod{number}", Volume(name="v", driver="d", handle=f"h{number}", pod_volume="data"))
        await node.volumes.release(f"pod{number}")
    assert len(node.driver.unstaged) == 20 and locks() == before


async def test_a_volume_that_is_mounted_elsewhere_is_not_unstaged(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.volumes.restore()
    node.data_file.unlink()  # by hand: the mount is still there
    monkeypatch.setattr(mounts, "references", lambda path: ["/data/elsewhere"])
    await node.volumes.sweep()
    assert node.kept
    monkeypatch.setattr(mounts, "references", lambda path: [])
    await node.volumes.sweep()
    assert not node.kept


def test_other_mounts_of_a_path_are_found_without_looking_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    staged = "/var/lib/kubelet/plugins/kubernetes.io/csi/d/x/globalmount"
    table = f"""
        1 0 8:1 / /
        2 1 8:2 / {staged}
        3 1 8:2 / /pods/uid/mount
        4 1 8:2 / /with\\040space
        5 1 8:2 /sub /pods/uid/subpath
        6 1 8:3 / /pods/other/mount
        7 1 8:2 / /mnt/again{staged.removeprefix("/var")}
        8 1 8:1 {staged.replace("/d/x/", "/d/y/")} /pods/bound
    """
    lines = [line.encode().split(b" ") for line in table.strip().replace("        ", "").splitlines()]
    monkeypatch.setattr(mounts, "_mountinfo", lambda: iter(lines))
    assert mounts.references(Path(staged)) == ["/pods/uid/mount", "/with space"]
    assert mounts.references(Path(staged.replace("/d/x/", "/d/y/"))) == ["/pods/bound"]
    assert mounts.references(Path(staged.replace("/d/x/", "/d/z/"))) == []
