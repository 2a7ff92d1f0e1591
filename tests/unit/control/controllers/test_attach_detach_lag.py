"""Volumes are kept whole while the attach/detach controller's caches lag behind the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from control.controllers.attach_detach import AttachDetachController
from control.controllers.attach_detach.controller import MANAGED, RETRY_SECONDS
from control.controllers.attach_detach.plan import FORCE_SECONDS
from kube.api import core_v1, storage_v1
from kube.client import Response
from kube.csi import attachment_name, unique_name
from tests.support.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI
from tests.support.working import working

DRIVER = "disk.csi.test"
VOLUME = unique_name(DRIVER, "h")
Node, Attachment = core_v1.Node, storage_v1.VolumeAttachment


class World(LaggingAPI):
    """Nodes a and b, and a volume with its claim. Records the nodes' statuses when an attachment was deleted."""

    def __init__(self, *, managed: bool = True) -> None:
        super().__init__()
        self.reported_at_deletion: list[list[str]] = []
        self.before: tuple[str, str, Callable[[], Awaitable[None]]] | None = None
        """Method and path of a request, and what happens once before it is taken."""
        self.add_volume("pv", "data")
        for name in ("a", "b"):
            metadata = {"name": name, "annotations": {MANAGED: "true"} if managed else {}}
            status = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.put(msgspec.convert({"metadata": metadata, "status": status}, Node))

    def add_volume(self, name: str, claim: str) -> None:
        mode = {"accessModes": ["ReadWriteOnce"]}
        metadata = {"name": claim, "namespace": "ns", "uid": f"uid-of-{claim}"}
        body = {"metadata": metadata, "spec": {**mode, "volumeName": name}}
        self.put(msgspec.convert(body, core_v1.PersistentVolumeClaim))
        source = {"csi": {"driver": DRIVER, "volumeHandle": "h"}, "claimRef": metadata}
        self.put(msgspec.convert({"metadata": {"name": name}, "spec": {**mode, **source}}, core_v1.PersistentVolume))

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if self.before is not None and self.before[:2] == (method, path):
            _, _, act = self.before
            self.before = None
            await act()
        if method == "DELETE" and "volumeattachments" in path:
            self.reported_at_deletion.append(self.reported("a"))
        return await super().request(method, path, **options)

    async def pod(self, name: str, node: str, claim: str = "data") -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        spec = {"nodeName": node, "containers": [], "volumes": volumes}
        self.put(msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, core_v1.Pod))
        await settle(100)

    async def gone(self, pod: str) -> None:
        await self.client().delete(core_v1.Pod, pod, "ns")
        await settle(100)

    async def patch(self, kind: type[Any], name: str, body: Mapping[str, Any]) -> None:
        await self.client().patch(kind, name, "", body)
        await settle(100)

    async def uses(self, uses: bool) -> None:
        """Have node a say whether it uses the volume."""
        await self.patch(Node, "a", {"status": {"volumesInUse": [VOLUME] if uses else None}})

    async def attached(self) -> None:
        """Have the driver attach the volume to node a."""
        await self.patch(Attachment, attachment_name(DRIVER, "h", "a"), {"status": {"attached": True}})

    def reported(self, node: str) -> list[str]:
        return [volume.name for volume in self.read(Node, node).status.volumes_attached]

    @property
    def on(self) -> list[str]:
        """The nodes that the volume is attached to."""
        return sorted(attachment.spec.node_name for attachment in self.everything(Attachment))


async def test_an_attachment_is_deleted_only_after_the_nodes_status_is_updated() -> None:
    world = World()
    async with working(world, FakeClock(), AttachDetachController):
        world.hold(Node)
        await world.pod("first", "a")
        await world.attached()
        assert world.reported("a") == [VOLUME]
        await world.gone("first")
        assert world.on == [] and world.reported_at_deletion == [[]]


async def test_a_volume_that_came_into_use_unseen_stays_attached_and_goes_when_that_use_ended_unseen() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, AttachDetachController):
        await world.pod("first", "a")
        await world.attached()
        world.hold(Node)
        await world.uses(True)
        await world.gone("first")
        await clock.advance(3 * RETRY_SECONDS)
        assert world.on == ["a"] and world.reported("a") == [VOLUME]
        await world.uses(False)
        await clock.advance(RETRY_SECONDS)
        assert world.on == [] and world.reported_at_deletion == [[]]


async def test_a_node_that_comes_to_use_a_volume_between_look_and_write_keeps_it() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, AttachDetachController):
        await world.pod("first", "a")
        await world.attached()
        world.before = ("PATCH", "/api/v1/nodes/a/status", lambda: world.uses(True))
        await world.gone("first")
        await clock.advance(60)
        assert world.on == ["a"] and world.reported("a") == [VOLUME] and world.reported_at_deletion == []


async def test_a_volume_for_one_node_is_never_on_two_whatever_the_cache_shows() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, AttachDetachController):
        world.hold(Attachment)
        await world.pod("first", "a")
        await world.uses(True)
        await world.gone("first")
        await world.pod("second", "b")
        await clock.advance(300)
        assert world.on == ["a"]
        await world.uses(False)
        world.let_go(Attachment)
        await settle(100)
        await clock.advance(RETRY_SECONDS)
        assert world.on == ["b"]


async def test_two_volumes_of_the_same_storage_are_not_attached_to_two_nodes_at_a_time() -> None:
    world = World()
    world.add_volume("other", "data-2")

    async def move() -> None:
        await world.gone("first")
        await world.pod("second", "b", "data-2")

    async with working(world, FakeClock(), AttachDetachController):
        world.hold(Attachment)
        world.before = ("POST", "/apis/storage.k8s.io/v1/volumeattachments", move)
        await world.pod("first", "a")
        await settle(500)
        assert world.on == ["a"]


async def test_pods_that_precede_their_nodes_attach_annotation_get_their_volumes() -> None:
    world = World(managed=False)
    async with working(world, FakeClock(), AttachDetachController):
        await world.pod("first", "a")
        assert world.on == []
        await world.patch(Node, "a", {"metadata": {"annotations": {MANAGED: "true"}}})
        assert world.on == ["a"]


async def test_what_somebody_else_writes_into_a_nodes_list_is_corrected() -> None:
    world = World()
    async with working(world, FakeClock(), AttachDetachController):
        await world.pod("first", "a")
        await world.attached()
        await world.patch(Node, "a", {"status": {"volumesAttached": None}})
        assert world.reported("a") == [VOLUME]


async def test_a_node_that_uses_a_volume_keeps_it_also_when_the_persistent_volume_is_gone() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, AttachDetachController):
        await world.pod("first", "a")
        await world.attached()
        await world.uses(True)
        await world.client().delete(core_v1.PersistentVolume, "pv")  # by force: its protection was taken off
        await settle(100)
        await clock.advance(60)
        assert world.on == ["a"]
        await world.uses(False)
        assert world.on == []


async def test_a_volume_stays_with_the_pods_of_a_node_whose_object_was_deleted_until_they_had_time_to_end() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, AttachDetachController):
        world.reported = lambda node: []  # type: ignore[method-assign]
        await world.pod("first", "a")
        await world.attached()
        await world.uses(True)
        await world.client().delete(Node, "a")
        await world.pod("second", "b")
        await clock.advance(2 * FORCE_SECONDS)
        assert world.on == ["a"], "the pod is there"
        await world.gone("first")
        await clock.advance(FORCE_SECONDS - 1)
        assert world.on == ["a"]
        await clock.advance(2)
        assert world.on == ["b"]


async def test_a_pod_that_never_started_on_a_dead_node_gives_its_volume_back_when_it_is_deleted() -> None:
    world, clock = World(), FakeClock()
    async with working(world, clock, AttachDetachController):
        await world.pod("first", "a")
        await world.attached()
        await world.uses(True)
        waiting = {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}
        changes = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["test/kept"]}}
        await world.client().patch(core_v1.Pod, "first", "ns", {**changes, "status": {"containerStatuses": [waiting]}})
        await world.pod("second", "b")
        unready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        await world.patch(Node, "a", {"status": unready})
        await clock.advance(FORCE_SECONDS - 1)
        assert world.on == ["a"]
        await clock.advance(2)
        assert world.on == ["b"]
