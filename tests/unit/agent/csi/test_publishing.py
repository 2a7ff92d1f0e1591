"""Data files after an error of a driver: none if it refused the volume, all if the volume may still come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.csi.layout import Layout
from agent.csi.publishing import Publisher
from agent.volumes import ownership
from agent.volumes.csi_volume import Volume
from agent.volumes.payload import VolumeError
from cri.errors import CRIError
from kube import serialize
from kube.api import core_v1, storage_v1

POD = msgspec.convert({"metadata": {"name": "web", "uid": "uid"}, "spec": {"containers": []}}, core_v1.Pod)
FINAL = ("INVALID_ARGUMENT", "INTERNAL", "NOT_FOUND", "UNKNOWN")
OPEN = ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELLED", "ABORTED", "RESOURCE_EXHAUSTED")


class Driver:
    """Fails in a step with a code while one is set."""

    def __init__(self) -> None:
        self.step = self.code = ""

    async def can(self, ability: int) -> bool:
        return False

    async def stages(self) -> bool:
        return True

    async def stage(self, *arguments: Any, **more: Any) -> None:
        self._fail("stage")

    async def publish(self, *arguments: Any, **more: Any) -> None:
        self._fail("publish")

    def _fail(self, step: str) -> None:
        if self.code and self.step == step:
            raise CRIError("no", code=self.code)


class Node:
    def __init__(self, root: Path, volume: Volume) -> None:
        self.layout, self.driver, self.volume = Layout(root, root / "pods"), Driver(), volume
        nothing: Any = None
        self.publisher = Publisher(nothing, "node", self.layout, nothing)

    async def publish(self, *, group: int | None = None, policy: str | None = None) -> None:
        driver: Any = self.driver
        spec, pod = storage_v1.CSIDriverSpec(fs_group_policy=policy), serialize.copy(POD)
        pod.spec.security_context = core_v1.PodSecurityContext(fs_group=group)
        await self.publisher.publish(driver, pod, self.volume, spec, {}, attached=False, staged_at={})

    async def fail(self, step: str, code: str) -> None:
        self.driver.step, self.driver.code = step, code
        with pytest.raises((VolumeError, CRIError)):
            await self.publish()
        self.driver.code = ""

    @property
    def recorded(self) -> tuple[bool, bool]:
        """Return whether the volume is staged and published by the data files."""
        return bool(self.layout.staged_volume("d", "h")), bool(self.layout.published("uid"))


@pytest.fixture(params=[False, True], ids=["files", "block"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, Volume(name="pv", driver="d", handle="h", pod_volume="data", block=request.param))


@pytest.mark.parametrize("code", FINAL)
async def test_a_refused_step_leaves_nothing_to_be_undone(node: Node, code: str) -> None:
    await node.fail("stage", code)
    assert node.recorded == (False, False)
    await node.fail("publish", code)
    assert node.recorded == (True, False)
    await node.publish()
    assert node.recorded == (True, True)


@pytest.mark.parametrize("code", OPEN)
async def test_a_step_that_may_be_under_way_is_on_record(node: Node, code: str) -> None:
    await node.fail("stage", code)
    assert node.recorded == (True, True)
    await node.fail("publish", code)
    assert node.recorded == (True, True)


async def test_what_an_earlier_call_began_stays_on_record(node: Node) -> None:
    await node.publish()
    for step in ("stage", "publish"):
        await node.fail(step, "INTERNAL")  # as after a restart of the agent, which repeats all calls
        assert node.recorded == (True, True)


async def test_files_that_a_driver_adds_when_it_publishes_again_get_the_pods_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, Volume(name="pv", driver="d", handle="h", pod_volume="data", fs_type="ext4"))
    groups: list[int] = []
    monkeypatch.setattr(ownership, "set_ownership", lambda folder, group, **how: groups.append(group))
    await node.publish(group=7)
    await node.publish(group=7)
    assert groups == [7, 7]
    await node.publish(group=7, policy="None")
    assert groups == [7, 7], "the policy as it is now"
