"""Claims, volumes and the pods that use them, over HTTPS against a real API server with hollow nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.api import core_v1
from kube.client import Client
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running


class Cluster:
    def __init__(self, server: ApiUnderTest, client: Client) -> None:
        self.server, self.client = server, client

    async def apply(self, *objects: dict[str, Any]) -> None:
        listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        await self.server.kubectl("apply", "-f", "-", input=json.dumps(listing))

    async def phases(self) -> dict[str, str | None]:
        volumes = (await self.client.list(core_v1.PersistentVolume)).items
        claims = (await self.client.list(core_v1.PersistentVolumeClaim)).items
        found = {volume.metadata.name or "": volume.status.phase for volume in volumes}
        return found | {claim.metadata.name or "": claim.status.phase for claim in claims}

    async def are(self, **wanted: str) -> bool:
        return (await self.phases()).items() >= wanted.items()

    async def messages(self, reason: str) -> list[str]:
        return [e.message or "" for e in (await self.client.list(core_v1.Event)).items if e.reason == reason]

    async def node_of(self, pod: str) -> str | None:
        return (await self.client.get(core_v1.Pod, pod, "default")).spec.node_name


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with api_server(tmp_path) as server:
        client = server.client()
        nodes = HollowNodes(client)
        async with running(server.controllers(), server.scheduler(), nodes.run()):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            await nodes.register("n0")
            await nodes.register("n1")
            yield Cluster(server, client)


def volume(name: str, size: str, storage_class: str = "manual", node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": f"/tmp/{name}"},
    }
    if node:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(name: str, size: str, storage_class: str = "manual") -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": storage_class,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, of: str) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "c", "image": "x"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": of}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


WAITING = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


async def test_a_claim_gets_the_smallest_volume_that_is_large_enough(cluster: Cluster) -> None:
    await cluster.apply(volume("small", "1Gi"), volume("large", "10Gi"), volume("middle", "5Gi"))
    await eventually(lambda: cluster.are(small="Available", middle="Available", large="Available"))
    await cluster.apply(claim("data", "2Gi"))
    await eventually(lambda: cluster.are(data="Bound", middle="Bound", small="Available", large="Available"))
    found = await cluster.client.get(core_v1.PersistentVolumeClaim, "data", "default")
    assert found.spec.volume_name == "middle" and found.status.capacity == {"storage": "5Gi"}
    owner = (await cluster.client.get(core_v1.PersistentVolume, "middle")).spec.claim_ref
    assert owner is not None and (owner.name, owner.uid) == ("data", found.metadata.uid)


async def test_a_claim_waits_for_a_volume_and_its_pod_for_the_claim(cluster: Cluster) -> None:
    await cluster.apply(claim("data", "1Gi"), pod("p", "data"))

    async def is_reported() -> bool:
        wanted = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        return any(message.startswith(wanted) for message in await cluster.messages("FailedScheduling"))

    await eventually(is_reported)
    assert await cluster.are(data="Pending")
    await cluster.apply(volume("disk", "1Gi", node="n1"))
    await eventually(lambda: cluster.are(data="Bound", disk="Bound"))

    async def placed() -> bool:
        return await cluster.node_of("p") == "n1"

    await eventually(placed)


async def test_a_claim_that_waits_for_its_pod_is_bound_where_the_pod_goes(cluster: Cluster) -> None:
    await cluster.apply(WAITING, volume("there", "1Gi", "local", node="n1"), claim("data", "1Gi", "local"))
    await eventually(lambda: cluster.messages("WaitForFirstConsumer"))
    await asyncio.sleep(0.2)
    assert await cluster.are(data="Pending", there="Available")
    await cluster.apply(pod("p", "data"))

    async def placed() -> bool:
        return await cluster.node_of("p") == "n1"

    await eventually(placed)
    await eventually(lambda: cluster.are(data="Bound", there="Bound"))
    await cluster.apply(claim("more", "1Gi", "local"), pod("q", "more"))

    async def is_reported() -> bool:
        wanted = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
        return any(message.startswith(wanted) for message in await cluster.messages("FailedScheduling"))

    await eventually(is_reported)


async def test_two_pods_never_get_the_same_volume(cluster: Cluster) -> None:
    disks = [volume(f"disk{n}", "1Gi", "local", node=f"n{n % 2}") for n in range(4)]
    claims = [claim(f"data{n}", "1Gi", "local") for n in range(4)]
    await cluster.apply(WAITING, *disks, *claims, *(pod(f"p{n}", f"data{n}") for n in range(4)))

    async def all_bound() -> bool:
        return await cluster.are(**{f"data{n}": "Bound" for n in range(4)})

    await eventually(all_bound)
    found = (await cluster.client.list(core_v1.PersistentVolumeClaim)).items
    assert len({c.spec.volume_name for c in found}) == 4


async def test_a_volume_is_released_when_its_claim_is_deleted(cluster: Cluster) -> None:
    await cluster.apply(volume("disk", "1Gi"), claim("data", "1Gi"))
    await eventually(lambda: cluster.are(data="Bound"))
    await cluster.client.delete(core_v1.PersistentVolumeClaim, "data", "default")
    await eventually(lambda: cluster.are(disk="Released"))
    await cluster.apply(claim("data", "1Gi"))
    await asyncio.sleep(0.3)
    assert await cluster.are(data="Pending", disk="Released")


async def test_a_volume_without_a_deleter_or_recycler_gets_an_event(cluster: Cluster) -> None:
    for policy, reason, text in (
        (
            "Delete",
            "VolumeFailedDelete",
            'error getting deleter volume plugin for volume "delete": no deletable volume',
        ),
        ("Recycle", "VolumeFailedRecycle", "No recycler plugin found for the volume!"),
    ):
        name = policy.lower()
        disk = volume(name, "1Gi")
        disk["spec"]["persistentVolumeReclaimPolicy"] = policy
        await cluster.apply(disk, claim(f"data-{name}", "1Gi"))
        await eventually(lambda name=name: cluster.are(**{f"data-{name}": "Bound"}))
        await cluster.client.delete(core_v1.PersistentVolumeClaim, f"data-{name}", "default")
        await eventually(lambda name=name: cluster.are(**{name: "Failed"}))
        status = (await cluster.client.get(core_v1.PersistentVolume, name)).status
        assert status.reason == reason and (status.message or "").startswith(text)
        await eventually(lambda reason=reason: cluster.messages(reason))


@pytest.mark.parametrize("kind", ["csi", "migrated"])
async def test_a_volume_of_a_storage_driver_is_left_to_its_provisioner_also_if_it_was_created_by_hand(
    cluster: Cluster, kind: str
) -> None:
    for name in ("driver", "manual"):
        disk = volume(name, "1Gi")
        disk["spec"]["persistentVolumeReclaimPolicy"] = "Delete"
        if name == "driver" and kind == "csi":
            del disk["spec"]["hostPath"]
            disk["spec"]["csi"] = {"driver": "d", "volumeHandle": "h"}
        elif name == "driver":
            disk["metadata"]["annotations"] = {"pv.kubernetes.io/migrated-to": "d"}
        await cluster.apply(disk, claim(f"data-{name}", "1Gi"))
        await eventually(lambda name=name: cluster.are(**{f"data-{name}": "Bound"}))
    await cluster.client.delete(core_v1.PersistentVolumeClaim, "data-driver", "default")
    await eventually(lambda: cluster.are(driver="Released"))
    change = {"metadata": {"labels": {"seen": "again"}}}
    await cluster.client.patch(core_v1.PersistentVolume, "driver", "", change)
    await cluster.client.delete(core_v1.PersistentVolumeClaim, "data-manual", "default")
    await eventually(lambda: cluster.are(manual="Failed"))
    assert await cluster.are(driver="Released")


async def test_a_missing_claim_is_named(cluster: Cluster) -> None:
    await cluster.apply(pod("p", "nothing"))

    async def is_reported() -> bool:
        wanted = '0/2 nodes are available: persistentvolumeclaim "nothing" not found.'
        return any(message.startswith(wanted) for message in await cluster.messages("FailedScheduling"))

    await eventually(is_reported)


async def test_a_claim_from_before_there_was_a_default_class_gets_it(cluster: Cluster) -> None:
    sizes = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {**sizes, **spec}}
        for name, spec in (("early", {}), ("without", {"storageClassName": ""}))
    ]
    await cluster.apply(*claims)
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "somebody.else"}
    await cluster.apply({**storage, "metadata": {"name": "late", "annotations": mark}})

    async def classes() -> bool:
        found = (await cluster.client.list(core_v1.PersistentVolumeClaim, "default")).items
        return {c.metadata.name: c.spec.storage_class_name for c in found} == {"early": "late", "without": ""}

    await eventually(classes)


async def test_a_claim_is_not_bound_to_a_volume_that_it_names_and_that_will_not_do(cluster: Cluster) -> None:
    small, device = claim("small", "2Gi"), claim("device", "1Gi")
    small["spec"]["volumeName"] = device["spec"]["volumeName"] = "mine"
    device["spec"]["volumeMode"] = "Block"
    await cluster.apply(volume("mine", "1Gi"), small, device)
    wanted = {
        f'Cannot bind to requested volume "mine": {why}'
        for why in ("requested PV is too small", "incompatible volumeMode")
    }
    await eventually(lambda: _reported(cluster, wanted))
    await eventually(lambda: cluster.are(mine="Available", small="Pending", device="Pending"))
    await cluster.apply(volume("mine", "2Gi"))  # large enough now
    await eventually(lambda: cluster.are(mine="Bound", small="Bound", device="Pending"))


async def _reported(cluster: Cluster, wanted: set[str]) -> bool:
    return wanted <= set(await cluster.messages("VolumeMismatch"))


async def test_a_claim_that_waits_for_pods_which_fit_nowhere_names_them(cluster: Cluster) -> None:
    nowhere = [pod(name, "data") for name in ("p", "q")]
    for each in nowhere:
        each["spec"]["nodeSelector"] = {"no": "such"}
    await cluster.apply(WAITING, *nowhere)
    await cluster.apply(claim("data", "1Gi", "local"))
    await eventually(lambda: cluster.messages("WaitForPodScheduled"))
    assert set(await cluster.messages("WaitForPodScheduled")) == {"waiting for pods p,q to be scheduled"}
