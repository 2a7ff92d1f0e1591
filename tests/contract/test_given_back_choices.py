"""Pods that wait for their volumes: the choice of a node is given back, or what they wait for is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.components.embedded import SCHEDULER
from control.scheduler import main
from control.scheduler.configuration import SchedulerConfig
from control.scheduler.plugins.volume_binding import BIND_SECONDS
from kube.api import core_v1, meta_v1, storage_v1
from kube.client import Client
from kube.clock import SYSTEM
from kube.shared_informers import SharedInformers
from kube.volume_binding import SELECTED_NODE
from tests.support.control import api_server
from tests.support.hollow import HollowNodes, eventually, running

SOON = BIND_SECONDS / 10


def pod(name: str) -> core_v1.Pod:
    source = core_v1.PersistentVolumeClaimVolumeSource(claim_name="data")
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.PodSpec(
            containers=[core_v1.Container(name="c", image="i")],
            volumes=[core_v1.Volume(name="v", persistent_volume_claim=source)],
        ),
    )


def claim() -> core_v1.PersistentVolumeClaim:
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name="data", namespace="default"),
        spec=core_v1.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name="s",
            resources=core_v1.VolumeResourceRequirements(requests={"storage": "1Gi"}),
        ),
    )


class Site:
    def __init__(self, client: Client, scheduler: main.Scheduler) -> None:
        self.client, self.scheduler = client, scheduler

    async def selected(self) -> str | None:
        found = await self.client.get(core_v1.PersistentVolumeClaim, "data", "default")
        return found.metadata.annotations.get(SELECTED_NODE)

    async def give_back(self) -> None:
        patch = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        await self.client.patch(core_v1.PersistentVolumeClaim, "data", "default", patch)

    async def delete_claim(self) -> None:
        kind = core_v1.PersistentVolumeClaim
        await self.client.patch(kind, "data", "default", {"metadata": {"finalizers": None}})
        await self.client.delete(kind, "data", "default")

    def placed(self) -> list[str]:
        return [key for node in self.scheduler.cluster.nodes.values() for key in node.pods]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with api_server(tmp_path) as server, contextlib.AsyncExitStack() as stack:
        client, nodes = server.client(), HollowNodes(server.client())
        await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="default", namespace="default")))
        metadata = meta_v1.ObjectMeta(name="s")
        mode = "WaitForFirstConsumer"
        await client.create(storage_v1.StorageClass(metadata=metadata, provisioner="x", volume_binding_mode=mode))
        await client.create(claim())
        acting = Client(server.api.client(SCHEDULER).transport)
        shared = SharedInformers(acting, SYSTEM)
        scheduler = main.Scheduler(acting, shared, SchedulerConfig(), SYSTEM)
        await stack.enter_async_context(running(shared.run(), scheduler.run(), nodes.run()))
        await nodes.register("n0")
        await nodes.register("n1")
        yield Site(client, scheduler)


async def test_a_node_that_a_provisioner_gives_back_is_chosen_again_soon(site: Site) -> None:
    await site.client.create(pod("p"))
    await eventually(site.selected)
    await site.give_back()
    await eventually(site.selected, within=SOON)


async def test_a_pod_whose_claim_is_recreated_gets_a_node_soon(site: Site) -> None:
    await site.client.create(pod("p"))
    await eventually(site.selected)
    await site.delete_claim()
    await site.client.create(claim())
    await eventually(site.selected, within=SOON)


async def test_a_deleted_pod_gives_back_what_it_waits_for(site: Site) -> None:
    await site.client.create(pod("p"))
    await eventually(site.selected)
    plugin = next(p for p in site.scheduler._served["default-scheduler"].profile.pre_bind if p.name == "VolumeBinding")
    assert plugin._reserved and site.placed()  # type: ignore[attr-defined]
    await site.client.delete(core_v1.Pod, "p", "default", grace_period_seconds=0)
    await eventually(lambda: not plugin._reserved, within=SOON)  # type: ignore[attr-defined]
    assert not site.placed()
