"""The node lifecycle controller on an API in memory, in virtual time."""

from __future__ import annotations

from typing import Any

import msgspec

from control.controllers.nodes import health
from control.controllers.nodes.lifecycle import NodeLifecycleController
from kube.api import core_v1
from kube.client import Response
from kube.clock import FakeClock, settle
from kube.errors import StatusError
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

    async def heartbeat(self, name: str, at: int) -> None:
        heard = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"}
        await self.client().patch(core_v1.Node, name, "", {"status": {"conditions": [heard]}})


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
