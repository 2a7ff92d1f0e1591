"""Devices through a real API server, its controllers and its scheduler; the documentation's manifests, on hollow nodes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.storage import codec
from kube import bounded_cache
from kube.api import core_v1, resource_v1
from kube.client import Client
from kube.errors import StatusError
from kube.object_names import metadata_of, name_of
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running

FINALIZER = "resource.kubernetes.io/delete-protection"
DRIVER = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: example-device-class}
spec:
  selectors:
  - cel: {expression: 'device.driver == "driver.example.com"'}
  config:
  - opaque: {driver: driver.example.com, parameters: {sharing: exclusive}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: cards-of-n1}
spec:
  driver: driver.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: old, attributes: {type: {string: vpu}}, capacity: {memory: {value: 64Gi}}}
  - {name: gpu-0, attributes: {type: {string: gpu}}, capacity: {memory: {value: 64Gi}}}
  - {name: gpu-1, attributes: {type: {string: gpu}}, capacity: {memory: {value: 64Gi}}}
"""
REQUEST = """
  devices:
    requests:
    - name: gpu-claim
      exactly:
        deviceClassName: example-device-class
        allocationMode: ExactCount
        count: 1
        selectors:
        - cel:
            expression: |-
              device.attributes["driver.example.com"].type == "gpu" &&
              device.capacity["driver.example.com"].memory == quantity("64Gi")
"""
TEMPLATE = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: separate}\nspec:\n  spec:"
SHARED = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: shared}\nspec:"
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        resource_v1.DeviceClass,
        resource_v1.ResourceSlice,
        resource_v1.ResourceClaim,
        resource_v1.ResourceClaimTemplate,
        core_v1.Pod,
    )
}


async def apply(server: ApiUnderTest, text: str) -> None:
    """Create what a manifest has, as kubectl would send it."""
    for found in yaml.safe_load_all(text):
        group = "api/v1" if found["apiVersion"] == "v1" else f"apis/{found['apiVersion']}"
        plural = {"DeviceClass": "deviceclasses"}.get(found["kind"], found["kind"].lower() + "s")
        place = "" if found["kind"] in ("DeviceClass", "ResourceSlice") else "/namespaces/default"
        answer = await server.request("POST", f"/{group}{place}/{plural}", found)
        assert answer.status == 201, answer.body


def pod(name: str, **claim: str) -> str:
    entry = {"name": "card", **claim}
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "card"}]}}
    spec = {"containers": [container], "resourceClaims": [entry]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


@contextlib.asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[tuple[ApiUnderTest, Client]]:
    async with api_server(directory, enable_controllers=True, enable_scheduler=True) as server:
        client = server.client()
        nodes = HollowNodes(client)
        async with running(nodes.run()):
            for name in ("n0", "n1"):
                await nodes.register(name)

            async def has_account() -> bool:
                with contextlib.suppress(StatusError):
                    return bool(await client.get(core_v1.ServiceAccount, "default", "default"))
                return False

            await eventually(has_account)
            await apply(server, DRIVER)
            yield server, client


async def running_on(client: Client, name: str) -> core_v1.Pod:
    async def runs() -> core_v1.Pod | None:
        found = await client.get(core_v1.Pod, name, "default")
        return found if found.status.phase == "Running" else None

    found = await eventually(runs)
    assert isinstance(found, core_v1.Pod)
    return found


async def test_a_pod_gets_a_claim_from_a_template_and_devices_for_it_and_gives_both_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        await apply(server, TEMPLATE + REQUEST.replace("\n", "\n  "))
        await apply(server, pod("worker", resourceClaimTemplateName="separate"))
        found = await running_on(client, "worker")
        assert found.spec.node_name == "n1"
        [status] = found.status.resource_claim_statuses
        assert status.name == "card" and (status.resource_claim_name or "").startswith("worker-card-")
        claim = await client.get(resource_v1.ResourceClaim, status.resource_claim_name or "", "default")
        metadata = metadata_of(claim)
        assert metadata.annotations["resource.kubernetes.io/pod-claim-name"] == "card"
        [owner] = metadata.owner_references
        assert (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion) == (
            "Pod",
            found.metadata.uid,
            True,
            True,
        )
        assert metadata.finalizers == [FINALIZER]
        [consumer] = claim.status.reserved_for
        assert (consumer.resource, consumer.name, consumer.uid) == ("pods", "worker", found.metadata.uid)
        allocation = claim.status.allocation
        assert allocation is not None and allocation.devices is not None and allocation.node_selector is not None
        [result] = allocation.devices.results
        assert (result.request, result.driver, result.pool, result.device) == (
            "gpu-claim",
            "driver.example.com",
            "n1",
            "gpu-0",
        )
        [config] = allocation.devices.config
        assert (config.source, config.requests) == ("FromClass", ["gpu-claim"])
        [term] = allocation.node_selector.node_selector_terms
        assert [(r.key, r.operator, r.values) for r in term.match_fields] == [("metadata.name", "In", ["n1"])]

        await client.delete(core_v1.Pod, "worker", "default", grace_period_seconds=0)

        async def gone() -> bool:
            return not (await client.list(resource_v1.ResourceClaim, "default")).items

        await eventually(gone)


async def test_pods_wait_for_devices_and_take_turns_with_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        await apply(server, TEMPLATE + REQUEST.replace("\n", "\n  "))
        for name in ("a", "b", "c"):
            await apply(server, pod(name, resourceClaimTemplateName="separate"))

        async def two_run_one_waits() -> str:
            pods = (await client.list(core_v1.Pod, "default")).items
            waiting = [p for p in pods if not p.spec.node_name and p.status.conditions]
            return name_of(waiting[0]) if len(waiting) == 1 and len(pods) == 3 else ""

        last = await eventually(two_run_one_waits)

        message = (
            "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )

        async def reported() -> bool:
            conditions = (await client.get(core_v1.Pod, last, "default")).status.conditions
            return message in [c.message for c in conditions if c.type == "PodScheduled"]

        await eventually(reported)
        first = next(name for name in ("a", "b", "c") if name != last)
        await client.delete(core_v1.Pod, first, "default", grace_period_seconds=0)
        assert (await running_on(client, last)).spec.node_name == "n1"


async def test_pods_share_a_claim_that_is_deallocated_after_the_last_of_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        await apply(server, pod("early", resourceClaimName="shared"))
        await apply(server, SHARED + REQUEST)
        await apply(server, pod("late", resourceClaimName="shared"))
        for name in ("early", "late"):
            assert (await running_on(client, name)).spec.node_name == "n1"
        claim = await client.get(resource_v1.ResourceClaim, "shared", "default")
        assert sorted(c.name for c in claim.status.reserved_for) == ["early", "late"]
        for name in ("early", "late"):
            await client.delete(core_v1.Pod, name, "default", grace_period_seconds=0)

        async def free() -> bool:
            found = await client.get(resource_v1.ResourceClaim, "shared", "default")
            return found.status.allocation is None and not found.metadata.finalizers and not found.status.reserved_for

        await eventually(free)


async def test_extended_resources_are_had_from_devices_where_a_class_stands_for_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        named = (
            DRIVER.split("---")[0]
            .replace("example-device-class}", "gpus}")
            .replace("spec:", "spec:\n  extendedResourceName: example.com/gpu", 1)
        )
        await apply(server, named)
        resources = {"requests": {"example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"}}
        spec = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": spec}
        await apply(server, yaml.safe_dump(manifest))
        found = await running_on(client, "plain")
        reported = found.status.extended_resource_claim_status
        assert found.spec.node_name == "n1" and reported is not None
        [mapping] = reported.request_mappings
        assert (mapping.container_name, mapping.resource_name, mapping.request_name) == (
            "c",
            "example.com/gpu",
            "container-0-request-0",
        )
        claim = await client.get(resource_v1.ResourceClaim, reported.resource_claim_name, "default")
        assert reported.resource_claim_name.startswith("plain-extended-resources-")
        assert metadata_of(claim).annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
        assert claim.status.allocation is not None and claim.status.allocation.devices is not None
        assert [r.device for r in claim.status.allocation.devices.results] == ["old", "gpu-0"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("device.nothing", "compilation failed: ERROR: <input>:1:7: undefined field 'nothing'"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
    ],
)
async def test_selectors_are_checked_when_they_are_written(tmp_path: Path, expression: str, message: str) -> None:
    async with api_server(tmp_path) as server:
        selector = resource_v1.DeviceSelector(cel=resource_v1.CELDeviceSelector(expression=expression))
        desired = resource_v1.DeviceClass(spec=resource_v1.DeviceClassSpec(selectors=[selector]))
        desired.metadata.name = "wrong"
        with pytest.raises(StatusError) as refusal:
            await server.client().create(desired)
        assert f'spec.selectors[0].cel.expression: Invalid value: "{expression}": {message}' in str(refusal.value)


async def test_administrators_access_needs_a_label_on_the_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api_server(tmp_path) as server:
        client = server.client()
        exactly = resource_v1.ExactDeviceRequest(device_class_name="c", admin_access=True)
        request = resource_v1.DeviceRequest(name="all", exactly=exactly)
        desired = resource_v1.ResourceClaim(
            spec=resource_v1.ResourceClaimSpec(devices=resource_v1.DeviceClaim(requests=[request]))
        )
        desired.metadata.name, desired.metadata.namespace = "monitor", "default"
        for number in range(10):
            other = core_v1.Namespace()
            other.metadata.name = f"other-{number}"
            await client.create(other)
        read, decode = list[str](), codec.decode

        def noted(data: bytes) -> Any:
            found = decode(data)
            read.extend([found["metadata"]["name"]] if found.get("kind") == "Namespace" else [])
            return found

        monkeypatch.setattr(codec, "decode", noted)
        bounded_cache.forget_all()
        with pytest.raises(StatusError, match="admin access to devices requires the"):
            await client.create(desired)
        assert set(read) == {"default"}
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await client.patch(core_v1.Namespace, "default", "", label)
        assert (await client.create(desired)).metadata.name == "monitor"
