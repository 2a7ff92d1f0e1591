"""Devices in a cluster, with unmodified kubectl: those of a device plugin, and those that a pod claims."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.claim_driver import CLASS, NAME, ClaimDriver
from tests.support.cluster import NODE, Cluster, eventually
from tests.support.device_plugin import device_plugin
from tests.support.pods import apply, container, execute, pod, wait_running

DICE = "example.com/dice"
RESOURCE = "resource.k8s.io/v1"


async def test_pods_share_out_a_device_plugins_devices(shared: Cluster, ns: str) -> None:
    def allocatable() -> bool:
        return bool(shared.get("node", NODE)["status"]["allocatable"].get(DICE) == "1")

    async with device_plugin(shared.prefix / "var/lib/kubelet/device-plugins", DICE, {"d0": "Healthy"}) as plugin:
        plugin.answer = {"devices": [{"container_path": "/dev/dice", "host_path": "/dev/urandom", "permissions": "r"}]}
        await asyncio.to_thread(eventually, allocatable, "the node has a die")

        def play() -> None:
            limits = {"resources": {"limits": {DICE: "1"}}}
            apply(shared, ns, pod("first", container(**limits)))
            wait_running(shared, ns, "first")
            assert execute(shared, ns, "first", "echo $DEVICES; head -c 3 /dev/dice | wc -c").split() == [
                "d0",
                "3",
            ]
            described = shared.kubectl("describe", "node", NODE).stdout
            assert [line.split()[1:] for line in described.splitlines() if line.split()[:1] == [DICE]] == [["1", "1"]]
            apply(shared, ns, pod("second", container(**limits)))
            eventually(
                lambda: f"Insufficient {DICE}" in shared.kubectl("describe", "pod", "second", "-n", ns).stdout,
                "the second pod waits for the die",
            )
            shared.kubectl("delete", "pod", "first", "-n", ns, "--now")
            wait_running(shared, ns, "second")
            shared.kubectl("delete", "pod", "second", "-n", ns, "--now")

        await asyncio.to_thread(play)


@pytest.fixture
def cards(shared: Cluster, ns: str) -> Iterator[None]:
    """A class of devices with one on the node, as its driver publishes it."""
    selector = {"cel": {"expression": f'device.driver == "{NAME}"'}}
    device_class = {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": "cards"}}
    pool = {"name": "here", "generation": 1, "resourceSliceCount": 1}
    slice_spec = {"driver": NAME, "nodeName": NODE, "pool": pool, "devices": [{"name": "card-0"}]}
    request = {"name": "card", "exactly": {"deviceClassName": "cards"}}
    template = {"spec": {"devices": {"requests": [request]}}}
    apply(
        shared,
        ns,
        {**device_class, "spec": {"selectors": [selector]}},
        {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": "cards-here"}, "spec": slice_spec},
        {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": {"name": "card"}, "spec": template},
    )
    yield
    shared.kubectl("delete", "deviceclass/cards", "resourceslice/cards-here", "--ignore-not-found", check=False)


async def test_a_claimed_device_is_in_its_pod_and_is_given_back(shared: Cluster, ns: str, cards: None) -> None:
    files: list[Path] = []

    def specify(name: str) -> None:
        """Write the CDI specification of a claim's device, as its driver does."""
        edits = {"env": ["CARD=card-0"], "deviceNodes": [{"path": "/dev/card", "hostPath": "/dev/urandom"}]}
        specification = {"cdiVersion": "0.5.0", "kind": CLASS, "devices": [{"name": name, "containerEdits": edits}]}
        file = Path("/var/run/cdi") / f"{shared.prefix.name}-{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(specification))
        files.append(file)

    def play() -> None:
        uses = container(resources={"claims": [{"name": "card"}]})
        given: dict[str, Any] = pod("player", uses)
        given["spec"]["resourceClaims"] = [{"name": "card", "resourceClaimTemplateName": "card"}]
        apply(shared, ns, given)
        wait_running(shared, ns, "player")
        (claim,) = shared.get("resourceclaims", "-n", ns)["items"]
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "card-0"
        found = execute(shared, ns, "player", "echo $CARD; head -c 3 /dev/card | wc -c")
        assert found.split() == ["card-0", "3"]

        def shown() -> bool:
            (status,) = shared.get("pod", "player", "-n", ns)["status"]["containerStatuses"]
            (reported,) = status["allocatedResourcesStatus"]
            return bool(reported["name"] == "claim:card" and reported["resources"][0]["health"] == "Unknown")

        eventually(shown, "the status tells of the card's health")
        shared.kubectl("delete", "pod", "player", "-n", ns, "--now")
        eventually(lambda: not shared.get("resourceclaims", "-n", ns)["items"], "the claim is gone")

    driver = ClaimDriver(shared.prefix / "var/lib/kubelet")
    driver.prepared = specify
    try:
        async with driver.serving():
            await asyncio.to_thread(play)
        assert [call for call, _ in driver.calls] == ["prepare", "unprepare"]
    finally:
        for file in files:
            file.unlink()
