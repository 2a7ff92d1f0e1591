"""Removals of folders on nodes that do not respond: they delay neither new volumes nor removals on other nodes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from control.controllers.context import Context
from control.controllers.local_path import LocalPathProvisioner, plan, removals
from kube.api import core_v1
from kube.client import Response
from kube.errors import StatusError
from kube.volume_binding import LOCAL_PATH_FOLDER, PROVISIONER, SELECTED_NODE
from tests.support.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI
from tests.support.working import working


def node(name: str) -> core_v1.Node:
    labels, annotations = {"kubernetes.io/hostname": name}, {LOCAL_PATH_FOLDER: "/volumes"}
    return msgspec.convert({"metadata": {"name": name, "labels": labels, "annotations": annotations}}, core_v1.Node)


def claim(name: str, namespace: str, node_name: str) -> core_v1.PersistentVolumeClaim:
    annotations = {SELECTED_NODE: node_name, PROVISIONER: plan.PROVISIONER}
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": plan.CLASS},
    }
    return msgspec.convert(body, core_v1.PersistentVolumeClaim)


class Nodes(LaggingAPI):
    """An API with the nodes a and b. Agents in `hanging` do not answer, those in `failing` with this status."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging, self.failing = set[str](), dict[str, int]()
        self.events = list[dict[str, Any]]()
        self.requested, self.running, self.most = list[tuple[str, str]](), 0, 0
        for name in ("a", "b"):
            self.put(node(name))
        self.put(plan.storage_class())

    def release(self, name: str, namespace: str, node_name: str) -> str:
        """Put a volume of a claim that was deleted, and return its name."""
        volume = plan.volume_for(claim(name, namespace, node_name), plan.storage_class(), node(node_name))
        volume.status = core_v1.PersistentVolumeStatus(phase="Released")
        self.put(volume)
        return volume.metadata.name or ""

    def exists(self, volume: str) -> bool:
        return self.read(core_v1.PersistentVolume, volume) is not None

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method == "POST" and path.endswith("/events"):
            self.events.append(json.loads(options["body"]))
        if "/proxy/localVolumes/" not in path:
            return await super().request(method, path, **options)
        name, volume = path.split("/")[4], path.rpartition("/")[2]
        self.requested.append((name, volume))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            while name in self.hanging:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        if name in self.failing:
            raise StatusError(self.failing[name], "Failed", "no")
        return Response(200, {}, b"{}")


async def test_a_node_that_hangs_delays_neither_new_volumes_nor_removals_on_other_nodes() -> None:
    world = Nodes()
    world.hanging.add("a")
    for number in range(40):
        world.release(f"p{number}", "mallory", "a")
    async with working(world, FakeClock(), LocalPathProvisioner):
        await settle(100)
        gone = world.release("old", "victim", "b")
        world.put(claim("new", "victim", "b"))
        await settle(300)
        assert world.exists("pvc-victim-new") and not world.exists(gone)
        assert world.running == 1 and [name for name, _ in world.requested].count("a") == 1


async def test_a_node_removes_the_folders_of_namespaces_in_round_robin() -> None:
    world = Nodes()
    world.hanging.add("a")
    for number in range(10):
        world.release(f"p{number}", "mallory", "a")
    async with working(world, FakeClock(), LocalPathProvisioner):
        await settle(100)
        world.release("old", "victim", "a")
        await settle(100)
        world.hanging.clear()
        async with asyncio.timeout(10):
            while len(world.requested) < 11:
                await asyncio.sleep(0.001)
        assert ("a", "pvc-victim-old") in world.requested[:3] and world.most == 1


async def test_a_removal_that_takes_too_long_is_requested_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removals, "TIMEOUT_SECONDS", 0.01)
    world, clock = Nodes(), FakeClock()
    world.hanging.add("a")
    volume = world.release("old", "shop", "a")
    async with working(world, clock, LocalPathProvisioner):
        async with asyncio.timeout(10):
            while world.running or not world.requested:
                await asyncio.sleep(0.001)
        await settle(100)
        assert len(world.requested) == 1 and world.exists(volume)
        (event,) = world.events
        assert event["reason"] == "VolumeFailedDelete" and "has not removed it within" in event["message"]
        world.hanging.clear()
        await clock.advance(removals.FIRST_RETRY)
        await settle(100)
        assert not world.exists(volume) and len(world.requested) == 2


async def test_an_unreachable_node_gets_one_request_in_half_a_minute_for_all_its_volumes() -> None:
    world, clock = Nodes(), FakeClock()
    world.failing["a"] = 503
    volumes = [world.release(f"p{number}", "shop", "a") for number in range(20)]
    async with working(world, clock, LocalPathProvisioner):
        for count in range(1, 4):
            await settle(200)
            assert len(world.requested) == count
            await clock.advance(removals.UNREACHABLE_SECONDS)
        del world.failing["a"]
        for _ in range(12):
            await clock.advance(removals.UNREACHABLE_SECONDS)
            await settle(200)
        assert not any(map(world.exists, volumes))


async def test_a_node_that_leaves_the_cluster_takes_its_folders_along() -> None:
    world = Nodes()
    world.hanging.add("a")
    volumes = [world.release(f"p{number}", "shop", "a") for number in range(5)]
    async with working(world, FakeClock(), LocalPathProvisioner):
        await settle(100)
        world.remove(node("a"))
        await settle(300)
        assert not any(map(world.exists, volumes)) and world.running == 0


class BrokenRecorder:
    """An event recorder that fails."""

    def __init__(self) -> None:
        self.tries = 0

    def event(self, *args: object) -> None:
        self.tries += 1
        raise RuntimeError("no events")


async def test_a_folder_whose_removal_ends_with_an_error_is_not_taken_for_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, clock, recorder, ended = Nodes(), FakeClock(), BrokenRecorder(), list[str]()
    world.failing["a"] = 500
    nodes = Context(world.client(), clock).informers.of(core_v1.Node)
    nodes._set("a", node("a"))
    name = world.release("old", "shop", "a")
    volume = world.read(core_v1.PersistentVolume, name)
    found = removals.FolderRemovals(world.client(), clock, recorder, nodes, ended.append)  # type: ignore[arg-type]
    assert volume is not None and not found.removed(volume)
    await settle(100)
    assert recorder.tries == 1 and not ended and not found.removed(volume)
    await clock.advance(removals.FIRST_RETRY)
    await settle(100)
    assert recorder.tries == 2 and not found.removed(volume)

    async def broken(volume: core_v1.PersistentVolume) -> None:
        raise RuntimeError("not contained")

    found.forget(name)
    await settle()
    ended.clear()
    monkeypatch.setattr(found, "_remove", broken)
    for _ in range(2):
        assert not found.removed(volume)
        await settle()
    assert ended == [name, name]
    await found.close()
