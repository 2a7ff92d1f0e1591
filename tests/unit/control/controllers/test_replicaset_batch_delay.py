"""Large ReplicaSets are looked at now and then while their pods change, small ones at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from control.controllers.batch_delay import MANY
from control.controllers.replicaset import ReplicaSetController
from kube import serialize
from kube.api import apps_v1, meta_v1
from kube.client import Response
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI
from tests.support.working import working

from .makers import pod, replica_set


class World(MemoryAPI):
    """A ReplicaSet whose status can be written; `reported` are its counts of ready pods."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[int] = []

    def place(self, name: str, ready: bool) -> None:
        """Make or change one of its pods."""
        owner = meta_v1.OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True
        )
        made = pod(name, ready=ready)
        made.metadata.owner_references = [owner]
        self.put(made)

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        if method == "PUT" and path.endswith("/replicasets/web/status"):
            found = serialize.convert(json.loads(body), apps_v1.ReplicaSet)
            self.reported.append(found.status.ready_replicas or 0)
            self.put(found)
            return Response(200, {}, serialize.encode(found))
        return await super().request(method, path, body=body, **options)


def desired(size: int, generation: int = 1) -> apps_v1.ReplicaSet:
    made = replica_set("web", size)
    made.spec.selector = meta_v1.LabelSelector(match_labels={"app": "web"})
    made.metadata.generation = generation
    return made


@contextlib.asynccontextmanager
async def controlled(world: World) -> AsyncIterator[FakeClock]:
    clock = FakeClock()
    async with working(world, clock, ReplicaSetController):
        await clock.advance(1)
        yield clock


@pytest.mark.parametrize(("size", "at_once"), [(MANY, 3), (MANY + 1, 0)])
async def test_pods_of_a_large_set_that_become_ready_one_by_one_are_counted_together(size: int, at_once: int) -> None:
    world = World()
    world.put(desired(size))
    for number in range(size):
        world.place(f"p{number}", False)
    async with controlled(world) as clock:
        world.reported.clear()
        for ready in (1, 2, 3):
            await settle(50)
            world.place(f"p{ready}", True)
            await settle(50)
        assert len(world.reported) == at_once
        await clock.advance(1)
        assert world.reported[-1] == 3 and len(world.reported) == max(1, at_once)


async def test_another_size_of_a_large_set_is_taken_up_at_once() -> None:
    world = World()
    world.put(desired(MANY + 50))
    for number in range(MANY + 50):
        world.place(f"p{number}", False)
    async with controlled(world):
        deleted: list[str] = []
        before = world.request

        async def request(method: str, path: str, **options: Any) -> Response:
            if method == "DELETE":
                deleted.append(path)
                return Response(200, {}, b"{}")
            return await before(method, path, **options)

        world.request = request  # type: ignore[method-assign]
        world.put(desired(MANY, generation=2))
        await settle(200)
        assert len(deleted) == 50
