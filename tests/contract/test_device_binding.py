"""Devices that are prepared first, that break while in use, or that an unused claim holds; through a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from kube.api import core_v1, meta_v1, resource_v1
from kube.client import Client
from kube.errors import StatusError
from kube.object_names import name_of
from tests.support.hollow import eventually

from .test_device_claims import REQUEST, SHARED, TEMPLATE, apply, cluster, pod, running_on

NETWORK = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: fabric}
spec:
  driver: driver.example.com
  allNodes: true
  pool: {name: fabric, generation: 1, resourceSliceCount: 1}
  devices:
  - name: far-gpu
    attributes: {type: {string: gpu}}
    capacity: {memory: {value: 64Gi}}
    bindsToNode: true
    bindingConditions: [Attached]
    bindingFailureConditions: [Broken]
"""


async def claim_of(client: Client, name: str) -> resource_v1.ResourceClaim:
    """Wait until a pod's claim is allocated."""

    async def allocated() -> resource_v1.ResourceClaim | None:
        found = await client.get(core_v1.Pod, name, "default")
        for status in found.status.resource_claim_statuses:
            claim = await client.get(resource_v1.ResourceClaim, status.resource_claim_name or "", "default")
            return claim if claim.status.allocation is not None else None
        return None

    found = await eventually(allocated)
    assert isinstance(found, resource_v1.ResourceClaim)
    return found


async def tell(client: Client, claim: resource_v1.ResourceClaim, condition: str) -> None:
    """Say of a claim's device what its driver would."""
    assert claim.status.allocation is not None and claim.status.allocation.devices is not None
    [result] = claim.status.allocation.devices.results
    reported = {"type": condition, "status": "True", "reason": "Told", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    device: dict[str, Any] = {"driver": result.driver, "pool": result.pool, "device": result.device}
    patch = {"status": {"devices": [{**device, "conditions": [{**reported, "message": ""}]}]}}
    await client.patch(resource_v1.ResourceClaim, name_of(claim), "default", patch, subresource="status")


async def test_a_pod_is_bound_when_its_device_is_ready_and_tried_again_when_it_never_will_be(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        await client.delete(resource_v1.ResourceSlice, "cards-of-n1")
        await apply(server, NETWORK + "---\n" + TEMPLATE + REQUEST.replace("\n", "\n  "))
        await apply(server, pod("remote", resourceClaimTemplateName="separate"))
        claim = await claim_of(client, "remote")
        first = claim.status.allocation
        assert first is not None and first.allocation_timestamp and first.devices is not None
        assert first.devices.results[0].binding_conditions == ["Attached"]

        async def nominated() -> bool:
            waiting = await client.get(core_v1.Pod, "remote", "default")
            assert not waiting.spec.node_name
            return waiting.status.nominated_node_name in ("n0", "n1")

        await eventually(nominated)
        await tell(client, claim, "Broken")

        async def again() -> bool:
            found = await client.get(resource_v1.ResourceClaim, name_of(claim), "default")
            events = await client.list(core_v1.Event, "default")
            reported = any("device far-gpu binding failed: Broken" in (e.message or "") for e in events.items)
            return reported and found.status.allocation is not None and not found.status.devices

        await eventually(again)
        await tell(client, await claim_of(client, "remote"), "Attached")
        assert (await running_on(client, "remote")).status.nominated_node_name is None


async def test_pods_leave_a_device_that_breaks_unless_their_claim_bears_with_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        await apply(server, TEMPLATE + REQUEST.replace("\n", "\n  "))
        tolerant = REQUEST + "        tolerations: [{key: broken, operator: Exists}]\n"
        await apply(server, SHARED + tolerant)
        await apply(server, pod("leaves", resourceClaimTemplateName="separate"))
        await running_on(client, "leaves")
        await apply(server, pod("stays", resourceClaimName="shared"))
        await running_on(client, "stays")
        # Another node may name any pool in a slice of its own, which says nothing of this node's devices.
        others = msgspec.structs.replace(
            await client.get(resource_v1.ResourceSlice, "cards-of-n1"), metadata=meta_v1.ObjectMeta(name="others")
        )
        assert others.spec.pool is not None
        others.spec.node_name, others.spec.pool.generation = "n2", 1 << 40
        for device in others.spec.devices:
            device.taints = [resource_v1.DeviceTaint(key="elsewhere", effect="NoExecute")]
        await client.create(others)
        found = await client.get(resource_v1.ResourceSlice, "cards-of-n1")
        for device in found.spec.devices:
            device.taints = [resource_v1.DeviceTaint(key="broken", effect="NoExecute")]
        await client.update(found)

        async def left() -> bool:
            try:
                return (await client.get(core_v1.Pod, "leaves", "default")).metadata.deletion_timestamp is not None
            except StatusError as error:
                return error.not_found

        await eventually(left)

        async def is_reported() -> bool:
            events = (await client.list(core_v1.Event, "default")).items
            return any(e.reason == "DeviceTaintManagerEviction" and e.involved_object.name == "leaves" for e in events)

        await eventually(is_reported)
        assert (await client.get(core_v1.Pod, "stays", "default")).metadata.deletion_timestamp is None


async def test_an_allocation_that_nobody_uses_is_taken_back_for_a_pod_that_cannot_go_there(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        await apply(server, SHARED + REQUEST)
        held = await client.get(resource_v1.ResourceClaim, "shared", "default")
        device = resource_v1.DeviceRequestAllocationResult(
            request="gpu-claim", driver="driver.example.com", pool="n9", device="gone"
        )
        name = core_v1.NodeSelectorRequirement(key="metadata.name", operator="In", values=["n9"])
        held.status.allocation = resource_v1.AllocationResult(
            devices=resource_v1.DeviceAllocationResult(results=[device]),
            node_selector=core_v1.NodeSelector(node_selector_terms=[core_v1.NodeSelectorTerm(match_fields=[name])]),
        )
        await client.update_status(held)
        await apply(server, pod("p", resourceClaimName="shared"))
        assert (await running_on(client, "p")).spec.node_name == "n1"


async def test_a_pod_that_names_its_node_itself_gets_its_claim_reserved(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        await apply(server, SHARED + REQUEST)
        await apply(server, pod("first", resourceClaimName="shared"))
        await running_on(client, "first")
        direct = yaml.safe_load(pod("direct", resourceClaimName="shared"))
        direct["spec"]["nodeName"] = "n1"
        await apply(server, yaml.safe_dump(direct))

        async def reserved() -> bool:
            found = await client.get(resource_v1.ResourceClaim, "shared", "default")
            return sorted(consumer.name for consumer in found.status.reserved_for) == ["direct", "first"]

        await eventually(reserved)
