"""Claims of ephemeral volumes and ranges of Services' addresses, against a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.controllers import manager, service_cidrs
from control.controllers.service_cidrs import FINALIZER
from kube.api import core_v1, meta_v1, networking_v1
from kube.client import Client
from kube.errors import StatusError
from tests.support.control import api_server
from tests.support.hollow import eventually, running


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with api_server(tmp_path) as server:
        client = server.client()
        async with running(server.controllers()):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            yield client


def pod(name: str) -> core_v1.Pod:
    resources = core_v1.VolumeResourceRequirements(requests={"storage": "1Gi"})
    template = core_v1.PersistentVolumeClaimTemplate(
        metadata=meta_v1.ObjectMeta(labels={"kind": "scratch"}),
        spec=core_v1.PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=resources),
    )
    volume = core_v1.Volume(name="tmp", ephemeral=core_v1.EphemeralVolumeSource(volume_claim_template=template))
    container = core_v1.Container(name="c", image="x")
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.PodSpec(containers=[container], volumes=[volume]),
    )


async def test_an_ephemeral_volume_gets_a_claim_that_goes_with_its_pod(client: Client) -> None:
    made = await client.create(pod("a"))
    claim = await eventually(lambda: client.get(core_v1.PersistentVolumeClaim, "a-tmp", "default"))
    assert [(r.kind, r.uid, r.controller) for r in claim.metadata.owner_references] == [
        ("Pod", made.metadata.uid, True)
    ]
    assert claim.metadata.labels == {"kind": "scratch"}
    assert claim.spec.resources is not None and claim.spec.resources.requests == {"storage": "1Gi"}
    await client.delete(core_v1.Pod, "a", "default", grace_period_seconds=0)

    async def gone() -> bool:
        return not (await client.list(core_v1.PersistentVolumeClaim, "default")).items

    await eventually(gone, within=60)


async def test_a_claim_of_somebody_else_is_not_taken(client: Client) -> None:
    template = pod("x").spec.volumes[0].ephemeral
    assert template is not None and template.volume_claim_template is not None
    others = core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name="b-tmp", namespace="default"), spec=template.volume_claim_template.spec
    )
    await client.create(others)
    await client.create(pod("b"))

    async def reported() -> list[str]:
        events = (await client.list(core_v1.Event, "default")).items
        return [e.message or "" for e in events if e.reason == "FailedBinding" and e.involved_object.name == "b"]  # type: ignore[union-attr]

    why = 'ephemeral volume tmp: PVC "default/b-tmp" was not created for pod "default/b" (pod is not owner)'
    assert await eventually(reported) == [why]


async def test_a_range_is_ready_and_goes_only_when_nobody_has_an_address_of_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_cidrs, "GRACE_SECONDS", 1.0)
    await client.create(
        networking_v1.ServiceCIDR(
            metadata=meta_v1.ObjectMeta(name="more"), spec=networking_v1.ServiceCIDRSpec(cidrs=["10.200.0.0/24"])
        )
    )

    async def state(status: str) -> bool:
        found = await client.get(networking_v1.ServiceCIDR, "more")
        return FINALIZER in found.metadata.finalizers and [c.status for c in found.status.conditions] == [status]

    await eventually(lambda: state("True"))
    port = core_v1.ServicePort(port=80)
    await client.create(
        core_v1.Service(
            metadata=meta_v1.ObjectMeta(name="s", namespace="default"),
            spec=core_v1.ServiceSpec(cluster_ip="10.200.0.9", ports=[port]),
        )
    )
    await client.delete(networking_v1.ServiceCIDR, "more")
    await eventually(lambda: state("False"))
    await client.delete(core_v1.Service, "s", "default")

    async def gone() -> bool:
        try:
            await client.get(networking_v1.ServiceCIDR, "more")
        except StatusError as error:
            return error.not_found
        return False

    await eventually(gone, within=60)


async def test_a_node_without_a_pod_range_gets_an_event_and_the_next_released_range(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        client = server.client()
        settings = manager.ControllerConfig(cluster_cidr="10.9.0.0/24", node_mask=25)
        async with running(server.controllers(settings)):
            for name in ("a", "b", "c"):
                await client.create(core_v1.Node(metadata=meta_v1.ObjectMeta(name=name)))

            async def ranges() -> dict[str, str]:
                nodes = (await client.list(core_v1.Node)).items
                return {node.metadata.name or "": node.spec.pod_cidr for node in nodes if node.spec.pod_cidr}

            async def reported() -> list[str]:
                events = (await client.list(core_v1.Event, "default")).items
                return [event.message or "" for event in events if event.reason == "CIDRNotAvailable"]

            async def two() -> bool:
                return len(await ranges()) == 2

            await eventually(two)
            lucky = await ranges()
            unlucky = next(name for name in ("a", "b", "c") if name not in lucky)
            assert await eventually(reported) == [f"Node {unlucky} status is now: CIDRNotAvailable"]
            gone = sorted(lucky)[0]
            await client.delete(core_v1.Node, gone)

            async def given() -> bool:
                return (await ranges()).get(unlucky) == lucky[gone]

            await eventually(given)
