"""The node lifecycle controller on an API in memory, in virtual time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.controllers.nodes import health
from control.controllers.nodes.lifecycle import NodeLifecycleController
from control.interfaces.local_nodes import LocalNodes
from kube.api import core_v1
from kube.client import Response
from kube.errors import StatusError
from kube.object_names import name_of
from tests.support.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI
from tests.support.working import working


class World(LaggingAPI):
    """Three ready nodes, one of which has a pod whose status a webhook refuses to have written."""

    def __init__(self) -> None:
        super().__init__()
        ready = {"type": "Ready", "status": "True"}
        for name in ("a", "b", "c"):
            self.put(msgspec.convert({"metadata": {"name": name}, "status": {"conditions": [ready]}}, core_v1.Node))
        metadata = {"name": "p", "namespace": "bad", "uid": "p"}
        pod = {"metadata": metadata, "spec": {"nodeName": "a", "containers": []}, "status": {"conditions": [ready]}}
        self.put(msgspec.convert(pod, core_v1.Pod))

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method == "PATCH" and "/namespaces/bad/pods/" in path:
            raise StatusError(500, "InternalError", "failed calling webhook")
        return await super().request(method, path, **options)

    async def heartbeat(self, name: str, at: int, status: str = "True") -> None:
        heard = {"type": "Ready", "status": status, "lastHeartbeatTime": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"}
        await self.client().patch(core_v1.Node, name, "", {"status": {"conditions": [heard]}})

    def taints(self, effect: str = "NoExecute") -> dict[str, str]:
        """Return the key of the taint with an effect by node."""
        nodes = self.everything(core_v1.Node)
        return {name_of(node): taint.key for node in nodes for taint in node.spec.taints if taint.effect == effect}

    def readiness(self) -> dict[str, str]:
        return {name_of(node): health.readiness(node) for node in self.everything(core_v1.Node)}

    def was_ever_tainted(self) -> bool:
        """Return whether any node had a NoExecute taint at any time."""
        return any(b'"NoExecute"' in line for _, _, _, line in self.history)


async def test_a_silent_node_is_tainted_although_the_status_of_one_of_its_pods_cannot_be_written() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, NodeLifecycleController):
        await settle(100)
        for at in range(0, 120, 10):
            await clock.advance(10)
            for name in ("b", "c"):
                await world.heartbeat(name, at)
        taints = {(taint.key, taint.effect) for taint in world.read(core_v1.Node, "a").spec.taints}
        assert taints == {(health.UNREACHABLE, "NoSchedule"), (health.UNREACHABLE, "NoExecute")}


async def test_when_no_node_is_ready_taints_of_earlier_are_removed_and_none_added() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, NodeLifecycleController):
        await settle(100)
        for at in range(0, 60, 10):
            await clock.advance(10)
            for name in ("b", "c"):
                await world.heartbeat(name, at)
        await settle(100)
        assert world.taints() == {"a": health.UNREACHABLE}
        for _ in range(12):
            await clock.advance(10)
        await settle(100)
        assert world.readiness() == dict.fromkeys("abc", "Unknown")
        assert world.taints() == {}
        assert world.taints("NoSchedule") == dict.fromkeys("abc", health.UNREACHABLE)


async def test_the_only_node_is_never_tainted_for_eviction() -> None:
    world, clock = World(), FakeClock()
    for name in ("b", "c"):
        world.remove(world.read(core_v1.Node, name))
    async with working(world, clock, NodeLifecycleController):
        for _ in range(12):
            await clock.advance(10)
        await settle(100)
        assert world.taints("NoSchedule") == {"a": health.UNREACHABLE}
        assert not world.was_ever_tainted()


async def test_a_node_that_is_excluded_from_disruption_does_not_count() -> None:
    world, clock = World(), FakeClock()
    excluded = world.read(core_v1.Node, "c")
    excluded.metadata.labels = {"node.kubernetes.io/exclude-disruption": ""}
    world.put(excluded)
    async with working(world, clock, NodeLifecycleController):
        await settle(100)
        for at in range(0, 70, 10):
            await clock.advance(10)
            await world.heartbeat("c", at)
        await settle(100)
        assert world.readiness() == {"a": "Unknown", "b": "Unknown", "c": "True"}
        assert world.taints() == {}


async def test_evictions_do_not_stop_if_no_node_counts() -> None:
    world, clock = World(), FakeClock()
    for name in "abc":
        node = world.read(core_v1.Node, name)
        node.metadata.labels = {"node.kubernetes.io/exclude-disruption": "true"}
        world.put(node)
    async with working(world, clock, NodeLifecycleController):
        await clock.advance(100)
        await settle(100)
        assert world.taints() == dict.fromkeys("abc", health.UNREACHABLE)


async def test_taints_are_removed_when_the_last_ready_node_is_deleted() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, NodeLifecycleController):
        await settle(100)
        for at in range(0, 50, 10):
            await clock.advance(10)
            await world.heartbeat("c", at)
        await settle(100)
        assert len(world.taints()) == 1  # of two; the other one's turn is ten seconds later
        world.remove(world.read(core_v1.Node, "c"))
        await settle(100)
        assert world.taints() == {}


@pytest.mark.parametrize("refused", [False, True], ids=["", "refused status"])
async def test_a_node_that_is_ready_again_gives_the_others_time_and_then_they_are_tainted_one_by_one(
    refused: bool,
) -> None:
    world, clock = World(), FakeClock()
    if not refused:
        world.remove(world.read(core_v1.Pod, "p", "bad"))
    async with working(world, clock, NodeLifecycleController):
        for _ in range(8):
            await clock.advance(10)
        await world.heartbeat("c", 80, "False")
        await clock.advance(40)
        await settle(100)
        assert (world.readiness(), world.taints()) == ({"a": "Unknown", "b": "Unknown", "c": "False"}, {})
        silent = 0
        for at in range(120, 165, 5):  # c is silent, but that counts from the time on at which b is ready again
            await world.heartbeat("b", at)
            await settle(100)
            assert len(world.taints()) == min(silent // 10, 2), silent
            assert world.readiness() == {"a": "Unknown", "b": "True", "c": "False"}, silent
            await clock.advance(5)
            silent += 5
        await world.heartbeat("b", 165)
        await clock.advance(6)
        await settle(100)
        assert world.taints() == {"a": health.UNREACHABLE, "c": health.UNREACHABLE}
        assert world.readiness() == {"a": "Unknown", "b": "True", "c": "Unknown"}


class Reviving(World):
    """Node a sends a heartbeat as soon as its status was set to unknown, before the controller has the response."""

    async def request(self, method: str, path: str, **options: Any) -> Response:
        response = await super().request(method, path, **options)
        if method == "PUT" and path.endswith("/nodes/a/status"):
            await self.heartbeat("a", 50)
            await settle(50)
        return response


async def test_a_node_that_reports_while_it_is_set_to_unknown_counts_as_ready() -> None:
    world, clock = Reviving(), FakeClock()
    world.remove(world.read(core_v1.Node, "c"))
    async with working(world, clock, NodeLifecycleController):
        await clock.advance(75)
        await settle(100)
        assert world.readiness() == {"a": "True", "b": "Unknown"}
        assert world.taints() == {"b": health.UNREACHABLE}


async def test_a_restarted_controller_removes_taints_while_no_node_is_ready() -> None:
    world, clock = World(), FakeClock()
    taint = core_v1.Taint(key=health.NOT_READY, effect="NoExecute")
    for name in "abc":
        node = world.read(core_v1.Node, name)
        node.spec.taints, node.status.conditions[0].status = [taint], "False"
        world.put(node)
    async with working(world, clock, NodeLifecycleController):
        await settle(200)
        assert world.taints() == {}


@pytest.mark.parametrize("conditions", [[], [{"type": "NetworkUnavailable", "status": "False"}]], ids=["none", "one"])
async def test_a_node_without_a_ready_condition_is_left_alone_for_a_minute(conditions: list[dict[str, str]]) -> None:
    world, clock = World(), FakeClock()
    new = {"metadata": {"name": "new"}, "status": {"conditions": conditions}}
    world.put(msgspec.convert(new, core_v1.Node))
    metadata, spec = {"name": "q", "namespace": "n", "uid": "q"}, {"nodeName": "new", "containers": []}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.put(msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, core_v1.Pod))

    def pod_readiness() -> str:
        status: str = world.read(core_v1.Pod, "q", "n").status.conditions[-1].status
        return status

    async with working(world, clock, NodeLifecycleController):
        await settle(100)
        for at in range(0, 55, 5):
            await clock.advance(5)
            for name in "abc":
                await world.heartbeat(name, at)
            await settle(100)
            assert world.taints() == world.taints("NoSchedule") == {}
            assert (world.readiness()["new"], pod_readiness()) == ("Unknown", "True")
        assert len(world.read(core_v1.Node, "new").status.conditions) == len(conditions)
        await clock.advance(10)
        await settle(100)
        assert world.taints() == world.taints("NoSchedule") == {"new": health.UNREACHABLE}
        assert pod_readiness() == "False"


async def test_a_node_of_this_process_is_ready_without_heartbeats_until_it_is_lost() -> None:
    world, clock, local = World(), FakeClock(), LocalNodes()
    local.add("a")
    async with working(world, clock, lambda context: NodeLifecycleController(context, local=local)):
        await settle(100)
        for _ in range(60):
            await clock.advance(10)
        await settle(100)
        assert world.readiness() == {"a": "True", "b": "Unknown", "c": "Unknown"}
        local.remove("a")
        await clock.advance(49)
        await settle(100)
        assert world.readiness()["a"] == "True"
        await clock.advance(1)
        await settle(100)
        assert world.readiness()["a"] == "Unknown"
