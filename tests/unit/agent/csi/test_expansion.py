"""Reports of an expansion in the claim: progress, failures that the controller must see to, and the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.csi.expansion import DriverExpansion
from agent.volumes.claims import BoundClaim
from agent.volumes.csi_volume import Volume
from agent.volumes.expansion import Expansion
from agent.volumes.payload import VolumeError
from cri.errors import CRIError
from kube.api import core_v1
from kube.errors import unavailable
from kube.json_object import Object
from tests.support.clock import FakeClock

POD = msgspec.convert({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": []}}, core_v1.Pod)


class Claims:
    """Client of one claim: notes patches of its status, and puts together what they make of it."""

    def __init__(self) -> None:
        self.patches: list[Object] = []
        self.claim: Object = {}

    async def patch(self, kind: type[Any], name: str, namespace: str, patch: Object, **how: Any) -> Any:
        assert (name, namespace, how["subresource"]) == ("data", "shop", "status")
        changes = patch["status"]
        self.patches.append(changes)
        status = self.claim["status"]
        status["allocatedResourceStatuses"] |= changes.get("allocatedResourceStatuses") or {}
        status["conditions"] += [c for c in changes.get("conditions") or [] if "$patch" not in c]
        status["allocatedResourceStatuses"] = {k: v for k, v in status["allocatedResourceStatuses"].items() if v}
        return msgspec.convert(self.claim, core_v1.PersistentVolumeClaim)


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def event(self, about: Any, kind: str, reason: str, message: str) -> None:
        self.seen.append((reason, message))


class Driver:
    """Expands to any size, unless it is to fail with a code."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.code = ""

    async def expand(self, handle: str, path: str, size: int, capability: Any, **more: Any) -> int:
        self.sizes.append(size)
        if self.code:
            raise CRIError("no", code=self.code)
        return size


class Node:
    def __init__(self) -> None:
        self.claims, self.events, self.driver = Claims(), Events(), Driver()
        client: Any = self.claims
        recorder: Any = self.events
        self.expansion = DriverExpansion(client, Expansion(client, recorder, clock=FakeClock()))

    def claim(self, asked: str, turn: str | None = "NodeResizePending", *, allocated: str | None = None) -> None:
        """A claim that had 1Gi and asks for more; `turn` is its resize status, None with an older controller."""
        status: Object = {
            "capacity": {"storage": "1Gi"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
            "allocatedResourceStatuses": {"storage": turn} if turn else {},
            "allocatedResources": {"storage": allocated or asked} if turn is not None else {},
        }
        spec = {"resources": {"requests": {"storage": asked}}}
        self.claims.claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": spec, "status": status}

    async def finish(self, volume: str = "9Gi", **changes: Any) -> None:
        driver: Any = self.driver
        spec = {"capacity": {"storage": volume}}
        persistent = msgspec.convert({"metadata": {"name": "pv"}, "spec": spec}, core_v1.PersistentVolume)
        bound = BoundClaim(msgspec.convert(self.claims.claim, core_v1.PersistentVolumeClaim), persistent)
        about = Volume(**{"name": "pv", "driver": "d", "handle": "h", "pod_volume": "data", **changes})
        await self.expansion.finish(POD, driver, about, bound, Path("/mount"), "/staged")

    async def fail(self, code: str) -> None:
        self.driver.code = code
        with pytest.raises(VolumeError, match="rpc error"):
            await self.finish()

    @property
    def turn(self) -> str | None:
        """Resize status of the claim."""
        found: str | None = self.claims.claim["status"]["allocatedResourceStatuses"].get("storage")
        return found


@pytest.fixture
def node() -> Node:
    return Node()


async def test_a_pending_resize_is_in_progress_while_the_driver_works_and_finished_with_the_allocated_size(
    node: Node,
) -> None:
    node.claim("5Gi", allocated="4Gi")
    await node.finish("5Gi")
    assert node.driver.sizes == [4 << 30]
    progress, done = node.claims.patches
    assert progress == {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}
    assert done == {
        "capacity": {"storage": "4Gi"},
        "allocatedResourceStatuses": {"storage": None},
        "conditions": [{"$patch": "delete", "type": "FileSystemResizePending"}],
    }


@pytest.mark.parametrize("turn", ["", "ControllerResizeInProgress", "NodeResizeInfeasible"])
async def test_the_node_does_nothing_while_it_is_the_controllers_turn(node: Node, turn: str) -> None:
    node.claim("9Gi", turn)
    await node.finish()
    assert not node.driver.sizes and not node.claims.patches


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND"])
async def test_a_size_that_is_never_possible_is_left_to_the_controller_with_a_condition(node: Node, code: str) -> None:
    node.claim("9Gi")
    await node.fail(code)
    assert node.turn == "NodeResizeInfeasible"
    (condition,) = node.claims.patches[-1]["conditions"]
    assert (condition["type"], condition["status"]) == ("NodeResizeError", "True")
    assert condition["message"].startswith("failed to expand pvc with rpc error: code = ")
    assert node.events.seen[-1][0] == "VolumeResizeFailed"
    await node.finish()
    assert len(node.driver.sizes) == 1, "no retry before the controller allows one"


async def test_after_another_failure_a_claim_that_asks_for_a_new_size_is_left_to_the_controller(node: Node) -> None:
    node.claim("9Gi")
    await node.fail("PERMISSION_DENIED")
    await node.fail("PERMISSION_DENIED")
    assert node.turn == "NodeResizeInProgress", "it is retried as long as that size is wanted"
    assert sum("conditions" in patch for patch in node.claims.patches) == 1, "the condition is there already"
    node.claims.claim["spec"]["resources"]["requests"]["storage"] = "5Gi"
    await node.fail("PERMISSION_DENIED")
    assert node.turn == "NodeResizeInfeasible"


async def test_a_driver_that_does_not_expand_volumes_in_use_does_not_keep_the_pod_from_starting(node: Node) -> None:
    for turn in ("NodeResizePending", None):
        node.claim("9Gi", turn)
        node.driver.code = "FAILED_PRECONDITION"
        await node.finish()
        assert node.events.seen[-1][0] == "VolumeResizeFailed"


async def test_a_controller_without_recovery_has_the_size_of_the_volume_applied(node: Node) -> None:
    node.claim("9Gi", None)
    await node.finish()
    assert node.driver.sizes == [9 << 30]
    (done,) = node.claims.patches
    assert done["capacity"] == {"storage": "9Gi"}


async def test_a_read_only_volume_is_not_expanded(node: Node) -> None:
    node.claim("9Gi")
    await node.finish(read_only=True)
    assert not node.driver.sizes and not node.claims.patches
    text = 'MountVolume.NodeExpandVolume failed for volume "pv" requested read-only file system'
    assert node.events.seen == [("FileSystemResizeFailed", text)] * 2


async def test_an_error_of_the_api_is_one_of_the_volume(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other errors would leave the pod's volumes, its tokens among them, without another refresh."""
    node.claim("2Gi")

    async def away(*_: object, **__: object) -> None:
        raise unavailable("away")

    monkeypatch.setattr(node.claims, "patch", away)
    with pytest.raises(VolumeError, match="cannot be recorded"):
        await node.finish()


async def test_a_volume_that_is_mounted_read_only_is_refused_with_one_event_for_each_size(node: Node) -> None:
    node.claim("2Gi")
    for size in ("2Gi", "2Gi", "3Gi"):
        await node.finish(size, read_only=True)
    assert [reason for reason, _ in node.events.seen] == ["FileSystemResizeFailed"] * 4, "of the pod and of the claim"
