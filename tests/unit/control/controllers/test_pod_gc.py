"""Pod garbage collection over virtual time: the real controller on an API in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from control.controllers.pod_gc import OUT_OF_SERVICE, PodGC
from kube import serialize
from kube.api import core_v1, meta_v1
from kube.client import Response
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.memory_api import MemoryAPI
from tests.support.working import working

from .makers import pod


class World(MemoryAPI):
    """Nodes and pods; `gone` are the pods that were deleted, `said` what was written of them before."""

    def __init__(self, *nodes: str) -> None:
        super().__init__()
        self.nodes = set(nodes)
        """Nodes that a GET finds; the informers see those that were `put`."""
        self.pods: dict[str, core_v1.Pod] = {}
        self.gone: list[str] = []
        self.statuses: dict[str, Any] = {}
        for name in nodes:
            self.put(node(name))

    def place(self, *pods: core_v1.Pod) -> None:
        for each in pods:
            self.pods[each.metadata.name or ""] = each
            self.put(each)

    def lose(self, name: str, *, really: bool = True) -> None:
        """Let a node vanish from what informers see, and really."""
        self.remove(node(name))
        if really:
            self.nodes.discard(name)

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        name = path.split("/")[-1 if not path.endswith("/status") else -2]
        if method == "GET" and path.startswith("/api/v1/nodes/"):
            if name not in self.nodes:
                raise StatusError(404, "NotFound", f'nodes "{name}" not found')
            return Response(200, {}, serialize.encode(node(name)))
        if method == "PATCH":
            self.statuses[name] = json.loads(body)["status"]
            return Response(200, {}, serialize.encode(self.pods[name]))
        if method == "DELETE":
            self.gone.append(name)
            self.remove(self.pods.pop(name))
            return Response(200, {}, b"{}")
        return await super().request(method, path, body=body, **options)


def node(name: str, *taints: str, ready: str = "True") -> core_v1.Node:
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(name=name),
        spec=core_v1.NodeSpec(taints=[core_v1.Taint(key=key, effect="NoExecute") for key in taints]),
        status=core_v1.NodeStatus(conditions=[core_v1.NodeCondition(type="Ready", status=ready)]),
    )


@contextlib.asynccontextmanager
async def collecting(world: World, threshold: int = 12500) -> AsyncIterator[FakeClock]:
    clock = FakeClock()
    async with working(world, clock, lambda context: PodGC(context, threshold)):
        yield clock


async def test_pods_of_a_node_that_is_gone_go_after_forty_seconds() -> None:
    world = World("n1", "n2")
    world.place(pod("a", node="n1"), pod("b", node="n2"), pod("done", node="n1", phase="Succeeded"))
    async with collecting(world) as clock:
        await clock.advance(20)
        world.lose("n1")
        await clock.advance(59)
        assert world.gone == []
        await clock.advance(21)
        assert sorted(world.gone) == ["a", "done"]
        (condition,) = world.statuses["a"]["conditions"]
        assert world.statuses["a"]["phase"] == "Failed"
        assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "DeletionByPodGC")
        assert condition["message"] == "PodGC: node no longer exists"
        assert "done" not in world.statuses  # it had ended by itself


async def test_a_node_that_is_there_after_all_keeps_its_pods() -> None:
    world = World("n1")
    world.place(pod("a", node="n1"))
    async with collecting(world) as clock:
        world.lose("n1", really=False)
        await clock.advance(120)
        assert world.gone == []


async def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    world = World("n1")
    world.place(pod("a", node="n1"))
    async with collecting(world) as clock:
        world.lose("n1")
        await clock.advance(30)
        world.put(node("n1"))
        await clock.advance(20)
        world.lose("n1")
        await clock.advance(30)
        assert world.gone == []


async def test_deleted_pods_that_no_kubelet_will_end_are_removed() -> None:
    world = World("n1")
    world.put(node("n2", OUT_OF_SERVICE, ready="Unknown"))
    world.put(node("n3", OUT_OF_SERVICE))
    world.place(
        pod("unplaced", node="", phase="Pending", deleting=True),
        pod("lost", node="n2", deleting=True),
        pod("stays-there", node="n2"),
        pod("ends-by-itself", node="n1", deleting=True),
        pod("of-a-ready-node", node="n3", deleting=True),
    )
    async with collecting(world) as clock:
        await clock.advance(20)
        assert sorted(world.gone) == ["lost", "unplaced"]


async def test_the_oldest_ended_pods_go_where_there_are_too_many() -> None:
    world = World("n1")
    world.place(*(pod(f"p{age}", phase="Failed", age=age) for age in (10, 40, 30, 20)), pod("runs", age=99))
    async with collecting(world, threshold=2) as clock:
        await clock.advance(20)
        assert world.gone == ["p40", "p30"]
