"""A ReadWriteOncePod volume is published to one pod of the node at a time, also after a restart of the agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agent.volumes.csi_volume import of_persistent
from agent.volumes.payload import VolumeError
from kube.api import core_v1
from tests.unit.agent.csi import test_attach_required
from tests.unit.agent.csi.test_attach_required import Node

MESSAGE = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"


@pytest.fixture(params=[False, True], ids=["files", "block"])
def node(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    volume = replace(test_attach_required.VOLUME, one_pod=True, block=request.param)
    monkeypatch.setattr(test_attach_required, "VOLUME", volume)
    made = Node(tmp_path)
    made.say(attachRequired=False)
    return made


async def refused(node: Node, name: str) -> VolumeError:
    with pytest.raises(VolumeError) as raised:
        await node.set_up(name)
    return raised.value


async def test_another_pod_waits_until_the_first_is_gone(node: Node) -> None:
    await node.set_up("first")
    await node.set_up("first")
    error = await refused(node, "second")
    assert str(error) == MESSAGE and error.step in ("MountVolume.SetUp", "MapVolume.SetUpDevice")
    assert len(node.driver.published) == 1
    node.restart()
    assert str(await refused(node, "second")) == MESSAGE, "by the data file, before the first is set up again"
    await node.set_up("first")
    await node.volumes.release("first")
    await node.set_up("second")
    assert len(node.driver.published) == 3


async def test_a_data_file_that_may_name_the_volume_refuses_it(node: Node) -> None:
    await node.set_up("first")
    (published,) = node.layout.published("first")
    published.data_file.write_text("")
    assert "first" in str(await refused(node, "second"))


@pytest.mark.parametrize(
    ("modes", "one_pod"),
    [(["ReadWriteOncePod"], True), (["ReadWriteOnce"], False), (["ReadWriteOncePod", "ReadWriteOnce"], False)],
)
def test_only_the_mode_alone_restricts_a_volume(modes: list[str], one_pod: bool) -> None:
    spec = {"accessModes": modes, "csi": {"driver": "d", "volumeHandle": "h"}}
    persistent = msgspec.convert({"metadata": {"name": "pv"}, "spec": spec}, core_v1.PersistentVolume)
    assert of_persistent(persistent, "data", read_only=False).one_pod is one_pod
