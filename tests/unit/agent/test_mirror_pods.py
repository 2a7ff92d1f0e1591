"""Mirror pods, each by itself: one that the API refuses or does not answer keeps no other from being shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.pods.mirror_pods import MirrorPods
from agent.pods.static import HASH, MIRROR
from kube.api import core_v1, meta_v1
from kube.errors import StatusError
from tests.support.clock import FakeClock


class Api:
    """Takes mirror pods in, but for namespaces that it does not have, and those whose webhook hangs."""

    def __init__(self) -> None:
        self.pods: dict[str, core_v1.Pod] = {}
        self.namespaces = {"default"}
        self.tried: list[str] = []
        self.deleted: list[str] = []

    async def get(self, kind: type, name: str) -> core_v1.Node:
        return core_v1.Node(metadata=meta_v1.ObjectMeta(name=name, uid="node-uid"))

    async def create(self, pod: core_v1.Pod) -> core_v1.Pod:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self.tried.append(key)
        if pod.metadata.namespace == "hangs":
            await asyncio.Event().wait()
        if pod.metadata.namespace not in self.namespaces:
            raise StatusError(404, "NotFound", f'namespaces "{pod.metadata.namespace}" not found')
        self.pods[key] = pod
        return pod

    async def delete(self, kind: type, name: str, namespace: str, **_: Any) -> None:
        self.deleted.append(f"{namespace}/{name}")
        self.pods.pop(f"{namespace}/{name}", None)


def static(name: str, namespace: str = "default", revision: str = "1") -> core_v1.Pod:
    annotations = {HASH: revision}
    metadata = meta_v1.ObjectMeta(name=name, namespace=namespace, uid=f"{name}-{revision}", annotations=annotations)
    return core_v1.Pod(metadata=metadata)


class World:
    def __init__(self) -> None:
        self.api, self.clock = Api(), FakeClock()
        self.mirrors = MirrorPods(self.api, "node-1", clock=self.clock)  # type: ignore[arg-type]

    def want(self, *pods: core_v1.Pod) -> None:
        self.mirrors.set_static_pods({pod.metadata.uid or "": pod for pod in pods})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    task = asyncio.create_task(world.mirrors.run())
    yield world
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_mirror_that_is_refused_keeps_no_other_from_being_shown(world: World) -> None:
    world.want(static("a", "gone"), static("b"), static("c", "hangs"), static("d"))
    await world.clock.advance(1)
    assert set(world.api.pods) == {"default/b", "default/d"}


async def test_a_mirror_that_is_refused_is_tried_again_ever_more_rarely_until_it_is_taken(world: World) -> None:
    world.want(static("a", "gone"))
    await world.clock.advance(600)
    assert 10 < world.api.tried.count("gone/a") < 20
    world.api.namespaces.add("gone")
    await world.clock.advance(60)
    assert set(world.api.pods) == {"gone/a"}
    await world.clock.advance(600)
    assert len(world.api.pods) == 1


async def test_a_mirror_goes_with_its_manifest_and_is_made_anew_for_a_changed_one(world: World) -> None:
    world.want(static("a"), static("b"))
    await world.clock.advance(1)
    world.want(static("b", revision="2"))
    await world.clock.advance(1)
    assert sorted(world.api.deleted) == ["default/a", "default/b"]
    assert world.api.pods["default/b"].metadata.annotations[MIRROR] == "2"


async def test_a_mirror_that_somebody_deleted_is_made_again(world: World) -> None:
    world.want(static("a"))
    await world.clock.advance(1)
    world.mirrors.update_mirror(world.api.pods.pop("default/a"), gone=True)
    await world.clock.advance(1)
    assert set(world.api.pods) == {"default/a"}


async def test_mirrors_without_a_manifest_go_also_where_they_were_seen_before_the_start() -> None:
    world = World()
    mirror = static("old")
    mirror.metadata.annotations[MIRROR] = "1"
    world.mirrors.update_mirror(mirror, gone=False)
    world.want(static("a"))
    task = asyncio.create_task(world.mirrors.run())
    await world.clock.advance(1)
    assert (world.api.deleted, set(world.api.pods)) == (["default/old"], {"default/a"})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
