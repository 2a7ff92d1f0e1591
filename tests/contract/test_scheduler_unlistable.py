"""The scheduler on a real server beside kinds that cannot be listed: pods that do not depend on them are placed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.components.embedded import SCHEDULER
from control.scheduler import listed_kinds, main
from control.scheduler.configuration import SchedulerConfig
from kube import resources
from kube.api import core_v1, meta_v1, resource_v1, scheduling_v1
from kube.client import Client
from kube.clock import SYSTEM
from kube.shared_informers import SharedInformers
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running
from tests.support.unlistable import Unlistable

REQUIRED = {"pods", "nodes", "namespaces"}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_kinds, "WAIT_SECONDS", 0.3)


@contextlib.asynccontextmanager
async def scheduling(server: ApiUnderTest, *broken: str) -> AsyncIterator[tuple[Unlistable, SharedInformers]]:
    unlistable = Unlistable(server.api.client(SCHEDULER).transport)
    unlistable.broken = set(broken)
    client = Client(unlistable)
    shared = SharedInformers(client, SYSTEM)
    scheduler = main.Scheduler(client, shared, SchedulerConfig(), SYSTEM)
    async with running(shared.run(), scheduler.run()):
        yield unlistable, shared


@contextlib.asynccontextmanager
async def site(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        client, nodes = server.client(), HollowNodes(server.client())
        await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="default", namespace="default")))
        async with running(nodes.run()):
            await nodes.register("n0", cpu="2")
            yield server


async def create(server: ApiUnderTest, name: str, *, cpu: str = "10m", **spec: Any) -> None:
    requests = core_v1.ResourceRequirements(requests={"cpu": cpu})
    container = core_v1.Container(name="c", image="i", resources=requests)
    meta = meta_v1.ObjectMeta(name=name, namespace="default")
    await server.client().create(core_v1.Pod(metadata=meta, spec=core_v1.PodSpec(containers=[container], **spec)))


async def is_bound(server: ApiUnderTest, name: str) -> bool:
    return bool((await server.client().get(core_v1.Pod, name, "default")).spec.node_name)


async def says(server: ApiUnderTest, name: str, text: str) -> None:
    async def said() -> bool:
        conditions = (await server.client().get(core_v1.Pod, name, "default")).status.conditions
        return any(c.type == "PodScheduled" and text in (c.message or "") for c in conditions)

    await eventually(said)


async def test_whatever_kind_cannot_be_listed_pods_that_do_not_depend_on_it_are_placed(tmp_path: Path) -> None:
    async with site(tmp_path) as server:
        async with scheduling(server) as (_, shared):
            kinds = {resources.of(kind).plural for kind, _, _ in shared._informers} - REQUIRED
        assert len(kinds) > 10
        for plural in sorted(kinds):
            async with scheduling(server, plural):
                await create(server, f"without-{plural}")
                await eventually(lambda name=f"without-{plural}": is_bound(server, name))


async def test_a_pod_with_a_claim_waits_until_claims_can_be_listed(tmp_path: Path) -> None:
    async with site(tmp_path) as server, scheduling(server, "persistentvolumeclaims", "resourceslices") as (broken, _):
        source = core_v1.PersistentVolumeClaimVolumeSource(claim_name="data")
        await create(server, "claims", volumes=[core_v1.Volume(name="data", persistent_volume_claim=source)])
        meta = meta_v1.ObjectMeta(name="d", namespace="default")
        await server.client().create(resource_v1.ResourceClaim(metadata=meta))
        await create(server, "devices", resource_claims=[core_v1.PodResourceClaim(name="d", resource_claim_name="d")])
        await says(server, "claims", "PersistentVolumeClaim cannot be listed yet")
        await says(server, "devices", "ResourceSlice cannot be listed yet")
        broken.broken = set()
        await says(server, "claims", 'persistentvolumeclaim "data" not found')
        await eventually(lambda: is_bound(server, "devices"))


async def test_a_pod_with_a_volume_waits_until_attachments_can_be_listed(tmp_path: Path) -> None:
    async with site(tmp_path) as server, scheduling(server, "volumeattachments") as (broken, _):
        source = core_v1.CSIVolumeSource(driver="d")
        await create(server, "volumes", volumes=[core_v1.Volume(name="data", csi=source)])
        await says(server, "volumes", "VolumeAttachment cannot be listed yet")
        broken.broken = set()
        await eventually(lambda: is_bound(server, "volumes"))


async def test_nobody_is_preempted_before_disruption_budgets_can_be_listed(tmp_path: Path) -> None:
    async with site(tmp_path) as server, scheduling(server, "poddisruptionbudgets") as (broken, _):
        meta = meta_v1.ObjectMeta(name="high")
        await server.client().create(scheduling_v1.PriorityClass(metadata=meta, value=1000))
        await create(server, "low", cpu="1500m")
        await eventually(lambda: is_bound(server, "low"))
        await create(server, "high", cpu="1500m", priority_class_name="high")
        await says(server, "high", "disruption budgets can be listed")
        assert await is_bound(server, "low")
        broken.broken = set()
        await eventually(lambda: is_bound(server, "high"))
