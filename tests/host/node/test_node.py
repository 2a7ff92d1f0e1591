"""The node itself: its object and lease, sweeping up, image garbage collection, eviction."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from agent.cgroups.tree import Cgroups, pod_limits
from agent.eviction import Eviction
from agent.eviction.image_filesystem import ImageFilesystem
from agent.eviction.signals import Reading
from agent.eviction.thresholds import ThresholdTracker, thresholds
from agent.images.garbage_collection import ImageDisk, ImageGC
from agent.interfaces import PodView
from agent.lifecycle import End
from agent.pods.housekeeping import Housekeeping
from agent.pods.references import ReferenceStore
from agent.pods.resource_state import PodResourceStates
from agent.runtime import Runtime
from agent.usage.collector import Collector
from agent.volumes.claims import ClaimReader
from agent.volumes.local_path import LocalPathVolumes
from agent.volumes.manager import VolumeManager
from agent.volumes.node_affinity import VolumeNodeAffinity
from agent.volumes.persistent import PersistentVolumes
from agent.volumes.tokens import TokenCache
from agent.volumes.trust_bundles import TrustBundles
from cri.client import Client as RuntimeClient
from kube.api import coordination_v1, core_v1
from kube.client import STRATEGIC
from kube.clock import SYSTEM
from tests.support import images
from tests.support.clock import FakeClock
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.node import NodeUnderTest, eventually
from tests.support.runtimes import CONTAINERD


async def test_a_node_registers_with_what_it_is_and_has_and_holds_its_lease(node: NodeUnderTest) -> None:
    found = await node.client.get(core_v1.Node, "node-1")
    status = found.status
    assert found.metadata.labels["kubernetes.io/hostname"] == "node-1"
    assert found.metadata.labels["kubernetes.io/os"] == "linux"
    assert [(a.type, a.address) for a in status.addresses] == [("InternalIP", "192.0.2.10"), ("Hostname", "node-1")]
    assert set(status.capacity) >= {"cpu", "memory", "pods", "ephemeral-storage"}
    assert status.node_info and status.node_info.kubelet_version.startswith("v1.36.")
    assert status.node_info.container_runtime_version.startswith(f"containerd://{CONTAINERD[0]}.")
    conditions = {c.type: (c.status, c.reason, c.message) for c in status.conditions}
    assert conditions["Ready"] == ("True", "KubeletReady", "kubelet is posting ready status")
    assert conditions["MemoryPressure"] == (
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    )
    assert conditions["DiskPressure"][1:] == ("KubeletHasNoDiskPressure", "kubelet has no disk pressure")
    assert any(images.BUSYBOX_IMAGE in image.names for image in status.images)

    async def held() -> bool:
        found = (await node.client.list(coordination_v1.Lease, "kube-node-lease")).items
        return [lease.metadata.name for lease in found] == ["node-1"]

    await eventually(held, "the node holds its lease")
    lease = await node.client.get(coordination_v1.Lease, "node-1", "kube-node-lease")
    assert lease.spec.holder_identity == "node-1" and lease.spec.lease_duration_seconds == 40
    assert lease.metadata.owner_references[0].uid == found.metadata.uid

    async def is_reported() -> bool:
        events = (await node.client.list(core_v1.Event, "default", field_selector="involvedObject.kind=Node")).items
        reasons = {e.reason for e in events}
        assert "NodeNotReady" not in reasons
        return {"Starting", "NodeReady"} <= reasons

    await eventually(is_reported, "the node's events are missing")


async def test_what_others_write_to_the_node_is_seen(node: NodeUnderTest) -> None:
    given_up = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped."}
    await node.client.patch(
        core_v1.Node, "node-1", "", {"status": {"conditions": [given_up]}}, type=STRATEGIC, subresource="status"
    )
    await node.client.patch(core_v1.Node, "node-1", "", {"spec": {"unschedulable": True}})

    async def back() -> bool:
        found = await node.client.get(core_v1.Node, "node-1")
        return any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)

    await eventually(back, "the node stays given up")

    async def is_reported() -> bool:
        events = (await node.client.list(core_v1.Event, "default", field_selector="involvedObject.kind=Node")).items
        return "Node node-1 status is now: NodeNotSchedulable" in {e.message for e in events}

    await eventually(is_reported, "nobody heard that the node takes no pods")
    await node.client.patch(core_v1.Node, "node-1", "", {"spec": {"unschedulable": None}})


async def test_what_belongs_to_no_pod_is_swept_up(server: ApiUnderTest, tmp_path: Path) -> None:
    pods, logs, links = tmp_path / "pods", tmp_path / "logs", tmp_path / "links"
    orphan, alive = "11111111-dead", "22222222-alive"
    outside = tmp_path / "outside"
    outside.write_text("keep")
    for uid in (orphan, alive):
        (pods / uid / "volumes").mkdir(parents=True)
        (logs / f"default_x_{uid}").mkdir(parents=True)
    (pods / orphan / "volumes/link").symlink_to(outside)
    links.mkdir()
    (links / "dangling.log").symlink_to(tmp_path / "none")
    (links / "kept.log").symlink_to(outside)
    cgroups = Cgroups(f"/sweep-{os.getpid()}", "cgroupfs")
    try:
        pod = core_v1.Pod()
        pod.metadata.uid = orphan
        await cgroups.ensure_pod(pod, pod_limits(pod, cfs_quota=True, period_us=100_000, pids=-1))
        assert orphan in cgroups.pod_uids()
        client = server.client()
        volumes = VolumeManager(
            pods,
            ReferenceStore(client, lambda uids: None),
            TokenCache(client),
            PersistentVolumes(
                pods,
                ClaimReader(client),
                LocalPathVolumes(tmp_path / "local-path"),
                VolumeNodeAffinity(client, "node-1", dict),
            ),
            TrustBundles(client),
        )
        await Housekeeping(
            lambda: {alive}, volumes, PodResourceStates(tmp_path), cgroups, logs, links, clock=SYSTEM
        ).sweep()
        assert orphan not in cgroups.pod_uids()
    finally:
        cgroups.fs.remove(f"sweep-{os.getpid()}")
    assert [p.name for p in pods.iterdir()] == [alive]
    assert [p.name for p in logs.iterdir()] == [f"default_x_{alive}"]
    assert [p.name for p in links.iterdir()] == ["kept.log"]
    assert outside.read_text() == "keep"


async def test_unused_images_go_when_their_disk_is_full(containerd: Containerd) -> None:
    containerd.load([images.busybox("example.test/unused:1"), images.Image("example.test/unused:2", labels={"a": "b"})])
    async with RuntimeClient(containerd.endpoint) as runtime:
        full = ImageGC(runtime, SYSTEM, high=85, low=80, minimum_age=0, disk=lambda _: ImageDisk(100 << 30, 1 << 30))
        empty = ImageGC(runtime, SYSTEM, high=85, low=80, minimum_age=0, disk=lambda _: ImageDisk(100 << 30, 90 << 30))
        young = ImageGC(runtime, SYSTEM, high=85, low=80, minimum_age=120, disk=lambda _: ImageDisk(100 << 30, 1 << 30))
        assert await empty.collect() == 0 and await young.collect() == 0
        assert await full.collect() > 0
        tags = {tag for image in await runtime.images.list_images() for tag in image.repo_tags}
        assert "example.test/unused:2" not in tags
        assert images.PAUSE_IMAGE in tags
    containerd.load([images.busybox(), images.pause()])


async def test_images_go_that_nothing_has_used_for_very_long(containerd: Containerd) -> None:
    containerd.load([images.Image("example.test/forgotten:1", labels={"c": "d"})])
    clock = FakeClock()
    async with RuntimeClient(containerd.endpoint) as runtime:
        old = ImageGC(runtime, clock, high=100, low=80, minimum_age=0, maximum_age=3600)
        assert await old.remove_old() == 0
        await clock.advance(3599)
        assert await old.remove_old() == 0
        await clock.advance(1)
        assert await old.remove_old() > 0
        tags = {tag for image in await runtime.images.list_images() for tag in image.repo_tags}
        assert "example.test/forgotten:1" not in tags and images.PAUSE_IMAGE in tags
    containerd.load([images.busybox(), images.pause()])


class Evicted:
    """Takes the place of the pods: records evictions."""

    def __init__(self, views: Mapping[str, PodView]) -> None:
        self.found, self.ends = views, dict[str, End]()

    def views(self) -> list[PodView]:
        return list(self.found.values())

    def by_uid(self) -> Mapping[str, PodView]:
        return self.found

    def evict(self, uid: str, end: End, grace: int, *, grounds: str = "") -> None:
        self.ends[uid] = end


async def test_a_node_without_memory_evicts_the_pod_that_takes_most_beyond_its_request(node: NodeUnderTest) -> None:
    script = "trap 'exit 0' TERM; head -c {} /dev/zero | tail -c {} | sleep 1000 & wait"
    for name, size, more in (
        ("small", "1k", {}),
        ("greedy", "30m", {}),
        ("entitled", "40m", {"resources": {"requests": {"memory": "200Mi"}}}),
    ):
        container = {
            "name": "main",
            "image": images.BUSYBOX_IMAGE,
            "command": ["sh", "-c", script.format(size, size)],
            **more,
        }
        await node.create(name, {"containers": [container]})
    pods = {name: await node.ready(name) for name in ("small", "greedy", "entitled")}
    async with RuntimeClient(node.config.runtime_endpoint) as runtime:

        async def grown() -> bool:
            stats = await runtime.runtime.list_container_stats()
            greedy = [
                s for s in stats if s.attributes.labels["io.kubernetes.pod.uid"] == (pods["greedy"].metadata.uid or "")
            ]
            return bool(greedy) and greedy[0].memory.working_set_bytes.value > 20 << 20

        await eventually(grown, "the greedy pod did not grow")
        found = await Runtime(runtime).pods()
        by_uid = {pod.metadata.uid or "": pod for pod in pods.values()}
        views = {
            uid: PodView(pod, found[uid].runtime.containers, found[uid].runtime.sandbox) for uid, pod in by_uid.items()
        }
        evicted = Evicted(views)
        changes: list[bool] = []
        collector = Collector(
            runtime,
            evicted,  # type: ignore[arg-type]
            SYSTEM,
            node_name="node-1",
            root_dir=node.config.root_dir,
            pods_dir=node.config.pods_dir,
            logs_dir=node.config.pod_logs_dir,
        )

        async def free(wanted: int) -> int:
            return 0

        async def nothing() -> None: ...

        eviction = Eviction(
            evicted,  # type: ignore[arg-type]
            ThresholdTracker(thresholds({"memory.available": "100Mi"}, {}, {}, {}), 300.0),
            lambda: {"memory.available": Reading(200 << 20, 1 << 30)},
            collector.snapshot,
            free,
            lambda: changes.append(True),
            ImageFilesystem(runtime, node.config.root_dir),
            remove_leftovers=nothing,
            clock=SYSTEM,
        )
        await eviction.check()
        assert not evicted.ends and not any(eviction.pressures().values())
        eviction.read = lambda: {"memory.available": Reading(50 << 20, 1 << 30)}
        await eviction.check()
    assert list(evicted.ends) == [pods["greedy"].metadata.uid]
    end = evicted.ends[pods["greedy"].metadata.uid or ""]
    assert (end.phase, end.reason) == ("Failed", "Evicted")
    assert end.message.startswith(
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container main was using "
    )
    assert eviction.pressures() == {"MemoryPressure": True} and changes == [True]


async def test_pods_that_use_more_disk_than_their_limits_are_evicted(node: NodeUnderTest) -> None:
    def container(path: str, **more: object) -> dict[str, object]:
        script = f"head -c 3000000 /dev/zero > {path}; trap 'exit 0' TERM; sleep 1000 & wait"
        return {"name": "main", "image": images.BUSYBOX_IMAGE, "command": ["sh", "-c", script], **more}

    volume = {"volumes": [{"name": "d", "emptyDir": {"sizeLimit": "1Mi"}}]}
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    limit = {"resources": {"limits": {"ephemeral-storage": "2Mi"}}}
    roomy = {"resources": {"limits": {"ephemeral-storage": "20Mi"}}}
    await node.create("volume", {**volume, "containers": [container("/d/x", **mount)]})
    await node.create("layer", {"containers": [container("/x", **limit)]})
    await node.create("within", {"containers": [container("/x", **roomy)]})
    messages = {
        "volume": 'Usage of EmptyDir volume "d" exceeds the limit "1Mi". ',
        "layer": "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
    }
    for name, message in messages.items():
        pod = await node.wait(name, lambda p: p.status.phase == "Failed", timeout=120)
        assert (pod.status.reason, pod.status.message) == ("Evicted", message)
        assert await node.event(name, "Evicted") == message
    assert (await node.get("within")).status.phase == "Running"
