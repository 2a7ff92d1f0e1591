"""Resource claims on the node: prepared by a real driver's sockets before the pod, released after it, recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.plugins.handler import DRA
from cri.fake import FakeRuntime
from kube.api import core_v1, meta_v1, resource_v1
from kube.errors import StatusError
from tests.support.claim_driver import CLASS, NAME, ClaimDriver, allocated_claim, reserve
from tests.support.control import ApiUnderTest
from tests.support.fake_node import calls, container, create
from tests.support.node import NodeUnderTest, eventually
from tests.support.plugins import RegistrationSocket


@pytest.fixture
def driver(node: NodeUnderTest) -> ClaimDriver:
    return ClaimDriver(node.config.root_dir)


async def with_claim(node: NodeUnderTest, name: str, claim: str = "shared", **spec: Any) -> core_v1.Pod:
    """Create a pod with one container that has the claim and one that has not."""
    uses = container(resources={"claims": [{"name": "card"}]})
    entry = [{"name": "card", "resourceClaimName": claim}]
    return await create(node, name, uses, container(name="other"), resourceClaims=entry, **spec)


def given(runtime: FakeRuntime) -> list[list[str]]:
    """Return the CDI devices of all containers made, in order."""
    return [[d.name for d in request.config.CDI_devices] for request in calls(runtime, "CreateContainer")]


def written(node: NodeUnderTest) -> list[dict[str, Any]]:
    note = json.loads((node.config.root_dir / "dra_manager_state").read_text())
    return json.loads(note["Data"])["ClaimInfoStateList"]  # type: ignore[no-any-return]


async def test_a_claim_is_made_ready_for_its_pods_and_put_back_after_the_last(
    node: NodeUnderTest, runtime: FakeRuntime, driver: ClaimDriver
) -> None:
    async with driver.serving():
        first = await with_claim(node, "first")
        second = await with_claim(node, "second")
        claim = await allocated_claim(node.client, "shared", first, second)
        for name in ("first", "second"):
            await node.ready(name)
        assert driver.calls == [("prepare", ["shared"])]
        assert sorted(given(runtime)) == [[], [], [f"{CLASS}=shared"], [f"{CLASS}=shared"]]
        (entry,) = written(node)
        assert (entry["ClaimUID"], entry["Namespace"]) == (claim.metadata.uid, "default")
        assert entry["PodUIDs"].keys() == {first.metadata.uid, second.metadata.uid}
        assert entry["DriverState"][NAME]["Devices"] == [
            {
                "PoolName": "here",
                "DeviceName": "card-0",
                "ShareID": None,
                "RequestNames": None,
                "CDIDeviceIDs": [f"{CLASS}=shared"],
            }
        ]
        await node.delete("first")
        await node.gone("first")
        assert driver.calls == [("prepare", ["shared"])]
        await node.delete("second")
        await node.gone("second")
        assert driver.calls == [("prepare", ["shared"]), ("unprepare", ["shared"])]
        assert written(node) == []


async def test_an_older_driver_is_spoken_to_in_its_version(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    async with ClaimDriver(node.config.root_dir, "v1beta1").serving():
        pod = await with_claim(node, "old")
        await allocated_claim(node.client, "shared", pod)
        await node.ready("old")
        assert [f"{CLASS}=shared"] in given(runtime)


async def test_a_pod_waits_until_its_claim_can_be_had(node: NodeUnderTest, driver: ClaimDriver) -> None:
    pod = await with_claim(node, "waits")
    text = "Failed to prepare dynamic resources: prepare dynamic resources: "

    async def reported(message: str) -> None:
        async def there() -> bool:
            return any(
                r == "FailedPrepareDynamicResources" and m == text + message for r, m in await node.events("waits")
            )

        await eventually(there, message)

    await reported('fetch ResourceClaim shared: resourceclaims.resource.k8s.io "shared" not found')
    claim = await allocated_claim(node.client, "shared")
    await reported(f"pod waits ({pod.metadata.uid}) is not allowed to use ResourceClaim shared ({claim.metadata.uid})")
    await reserve(node.client, claim, pod)
    await reported(f"DRA driver {NAME} is not registered")
    driver.fail = "no such card"
    async with driver.serving():
        await reported("NodePrepareResources failed for ResourceClaim shared: no such card")
        driver.fail, driver.skip = "", True
        await reported("NodePrepareResources skipped 1 ResourceClaims")
        driver.skip = False
        await node.ready("waits")


async def test_a_pod_ends_when_its_driver_has_put_the_claim_back(node: NodeUnderTest, driver: ClaimDriver) -> None:
    async with driver.serving():
        pod = await with_claim(node, "ends")
        await allocated_claim(node.client, "shared", pod)
        await node.ready("ends")
        driver.fail = "still busy"
        await node.delete("ends")
        await eventually(lambda: _seen(driver, 2), "the driver was not asked again")
        assert (await node.get("ends")).metadata.deletion_timestamp
        driver.fail = ""
        await node.gone("ends")


async def _seen(driver: ClaimDriver, count: int) -> bool:
    return [call for call, _ in driver.calls].count("unprepare") >= count


async def test_the_next_agent_knows_what_was_made_ready_and_puts_back_what_went(
    node: NodeUnderTest, runtime: FakeRuntime, driver: ClaimDriver
) -> None:
    uses = container("exit 1", resources={"claims": [{"name": "card"}]})
    entry = [{"name": "card", "resourceClaimName": "shared"}]
    async with driver.serving():
        pod = await create(node, "one", uses, resourceClaims=entry)
        await allocated_claim(node.client, "shared", pod)
        await eventually(lambda: _made(runtime, 1), "the container was not made")
        await node.stop()
    await node.start()
    # The container is recreated, and gets what was prepared although the driver is not there.
    before = len(given(runtime))
    await eventually(lambda: _made(runtime, before + 1), "the container was not made again")
    assert set(map(tuple, given(runtime))) == {(f"{CLASS}=shared",)}
    await node.stop()
    await node.client.delete(core_v1.Pod, "one", "default", grace_period_seconds=0)
    await node.start()
    async with driver.serving():
        await eventually(lambda: _seen(driver, 1), "the claim was not put back")
    assert [call for call, _ in driver.calls] == ["prepare", "unprepare"]


async def _made(runtime: FakeRuntime, count: int) -> bool:
    return len(given(runtime)) >= count


async def test_the_pods_status_reports_the_device_health_of_the_driver(
    node: NodeUnderTest, driver: ClaimDriver
) -> None:
    def reported(pod: core_v1.Pod) -> list[tuple[str, str, str, str | None]]:
        return [
            (status.name, found.resource_id, found.health or "", found.message)
            for status in pod.status.container_statuses[0].allocated_resources_status
            for found in status.resources
        ]

    async with driver.serving():
        pod = await with_claim(node, "watched")
        await allocated_claim(node.client, "shared", pod)
        device = ("claim:card", f"{CLASS}=shared")
        await node.wait(
            "watched", lambda p: p.status.container_statuses and reported(p) == [(*device, "Unknown", None)]
        )
        driver.health.put_nowait((2, "too hot"))
        await node.wait("watched", lambda p: reported(p) == [(*device, "Unhealthy", "too hot")])
        driver.health.put_nowait((1, ""))
        await node.wait("watched", lambda p: reported(p) == [(*device, "Healthy", None)])
    await node.wait("watched", lambda p: reported(p) == [(*device, "Unknown", None)])


async def test_slices_of_drivers_that_are_gone_are_deleted(node: NodeUnderTest, api: ApiUnderTest) -> None:
    def publish(name: str, where: str) -> resource_v1.ResourceSlice:
        pool = resource_v1.ResourcePool(name="here", generation=1, resource_slice_count=1)
        spec = resource_v1.ResourceSliceSpec(driver=NAME, node_name=where, pool=pool)
        return resource_v1.ResourceSlice(metadata=meta_v1.ObjectMeta(name=name), spec=spec)

    async def there(name: str) -> bool:
        try:
            await node.client.get(resource_v1.ResourceSlice, name)
        except StatusError as error:
            assert error.not_found
            return False
        return True

    async with ClaimDriver(node.config.root_dir).serving():
        await node.client.create(publish("mine", node.config.node_name))
        await node.client.create(publish("elsewhere", "node-2"))
        assert await there("mine")

    async def wiped() -> bool:
        return not await there("mine")

    await eventually(wiped, "the slice of a driver that is gone is still there")
    assert await there("elsewhere")


async def test_a_driver_without_a_version_in_common_is_refused(node: NodeUnderTest) -> None:
    socket: Path = node.config.root_dir / "plugins_registry" / "o.sock"
    async with RegistrationSocket(socket, DRA, NAME, "/nowhere.sock", ("v1alpha3.Node",)) as registration:
        assert "none of the required gRPC services" in await registration.registration_errors.get()
