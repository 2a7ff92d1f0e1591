"""Device plugins over their real sockets: registered, counted, given to containers, lost and found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.managers.checkpoint_writer import CheckpointWriter
from agent.plugins.handler import DEVICE
from cri.fake import FakeRuntime
from kube.api import core_v1
from tests.support.control import ApiUnderTest
from tests.support.device_plugin import DevicePlugin, device_plugin
from tests.support.fake_node import calls, container, create, waiting
from tests.support.node import FastClock, NodeUnderTest, agent_node, eventually
from tests.support.plugins import RegistrationSocket

GPU = "example.com/gpu"
TWO = {"a": "Healthy", "b": "Healthy"}


def folder(node: NodeUnderTest) -> Path:
    return node.config.root_dir / "device-plugins"


def wants(count: int = 1, name: str = "main", **more: Any) -> dict[str, Any]:
    return container(name=name, resources={"limits": {GPU: str(count)}}, **more)


async def counted(node: NodeUnderTest, capacity: str, allocatable: str, resource: str = GPU) -> None:
    """Wait until the node object says so."""

    async def there() -> bool:
        status = (await node.client.get(core_v1.Node, node.config.node_name)).status
        return (status.capacity.get(resource), status.allocatable.get(resource)) == (capacity, allocatable)

    await eventually(there, f"the node does not have {allocatable} of {capacity} {resource}")


def made(runtime: FakeRuntime) -> list[Any]:
    return [request.config for request in calls(runtime, "CreateContainer")]


def env(config: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in config.envs}


async def test_a_plugins_devices_are_the_nodes_and_follow_their_health(node: NodeUnderTest) -> None:
    async with device_plugin(folder(node), GPU, TWO) as plugin:
        await counted(node, "2", "2")
        await plugin.set(b="Unhealthy", c="Healthy")
        await counted(node, "3", "2")
        await plugin.set(b="", c="")
        await counted(node, "1", "1")
        await plugin.stop()
        await counted(node, "1", "0")
        # It comes back under the same name.
        await plugin.start()
        await plugin.register()
        await counted(node, "1", "1")
    await counted(node, "1", "0")
    await counted(node, "0", "0")  # five minutes later


async def test_a_plugin_may_register_again_while_it_is_there(node: NodeUnderTest) -> None:
    async with device_plugin(folder(node), GPU, TWO) as plugin:
        await counted(node, "2", "2")
        for _ in range(3):
            await plugin.register()
        await plugin.set(c="Healthy")
        await counted(node, "3", "3")


async def test_an_unforeseen_error_loses_the_plugin_until_it_registers_again_and_not_the_agent(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, failures = CheckpointWriter.try_save, iter([TypeError("a bug")])

    async def fail_once(writer: CheckpointWriter) -> None:
        for error in failures:
            raise error
        await save(writer)

    monkeypatch.setattr(CheckpointWriter, "try_save", fail_once)
    async with device_plugin(folder(node), GPU, TWO) as plugin:
        await counted(node, "2", "0")
        await plugin.register()
        await counted(node, "2", "2")


async def test_a_container_gets_the_devices_of_its_plugins_response(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    async with device_plugin(folder(node), GPU, TWO, pre_start_required=True) as plugin:
        plugin.answer = {
            "mounts": [{"container_path": "/lib/gpu", "host_path": "/opt/gpu", "read_only": True}],
            "devices": [{"container_path": "/dev/gpu0", "host_path": "/dev/null", "permissions": "rw"}],
            "annotations": {"example.com/note": "yes"},
            "cdi_devices": [{"name": "example.com/gpu=a"}],
        }
        await counted(node, "2", "2")
        await create(node, "one", wants(env=[{"name": "OWN", "value": "$(DEVICES)"}]))
        await node.ready("one")
        (config,) = made(runtime)
        assert plugin.calls == [("Allocate", ["a"]), ("PreStartContainer", ["a"])]
        assert env(config)["DEVICES"] == "a"
        (mount,) = [m for m in config.mounts if m.container_path == "/lib/gpu"]
        assert (mount.host_path, mount.readonly) == ("/opt/gpu", True)
        (device,) = config.devices
        assert (device.container_path, device.host_path, device.permissions) == ("/dev/gpu0", "/dev/null", "rw")
        assert config.annotations["example.com/note"] == "yes"
        assert [found.name for found in config.CDI_devices] == ["example.com/gpu=a"]


async def test_the_pods_status_reports_its_devices_health(node: NodeUnderTest) -> None:
    def reported(pod: core_v1.Pod) -> dict[str, str | None]:
        statuses = pod.status.container_statuses[0].allocated_resources_status if pod.status.container_statuses else []
        return {found.resource_id: found.health for status in statuses for found in status.resources}

    async with device_plugin(folder(node), GPU, TWO) as plugin:
        await counted(node, "2", "2")
        await create(node, "watched", wants(2))
        await node.wait("watched", lambda p: reported(p) == {"a": "Healthy", "b": "Healthy"})
        await plugin.set(b="Unhealthy")
        await node.wait("watched", lambda p: reported(p) == {"a": "Healthy", "b": "Unhealthy"})
    await node.wait("watched", lambda p: reported(p) == {"a": "Unknown", "b": "Unknown"})


async def test_the_plugins_preferred_devices_are_allocated(node: NodeUnderTest) -> None:
    three = {**TWO, "c": "Healthy"}
    async with device_plugin(folder(node), GPU, three, get_preferred_allocation_available=True) as plugin:
        plugin.preferred = ["c", "b"]
        await counted(node, "3", "3")
        await create(node, "picky", wants(2))
        await node.ready("picky")
        assert plugin.calls == [("GetPreferredAllocation", ["a", "b", "c"]), ("Allocate", ["b", "c"])]


async def test_main_containers_take_over_the_init_containers_devices(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    async with device_plugin(folder(node), GPU, TWO) as plugin:
        await counted(node, "2", "2")
        await create(node, "both", wants(2), initContainers=[wants(1, "first", command=["true"])])
        await node.ready("both")
        assert plugin.calls == [("Allocate", ["a"]), ("Allocate", ["a", "b"])]
        assert [env(config)["DEVICES"] for config in made(runtime)] == ["a", "a,b"]


async def test_what_cannot_be_had_fails_with_upstreams_words(node: NodeUnderTest) -> None:
    async with device_plugin(folder(node), GPU, TWO) as plugin:
        await counted(node, "2", "2")
        await create(node, "greedy", wants(3))
        pod = await node.wait("greedy", lambda p: p.status.phase == "Failed")
        assert pod.status.reason == f"OutOf{GPU}"
        plugin.fail = "on fire"
        await create(node, "unlucky", wants(1))
        pod = await node.wait("unlucky", lambda p: p.status.phase == "Failed")
        assert pod.status.reason == "UnexpectedAdmissionError"
        assert pod.status.message == (
            "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = on fire, which is unexpected"
        )
        assert "on fire" in await node.event("unlucky", "UnexpectedAdmissionError")
        plugin.fail = ""
        # Nothing stayed with them, and what a pod had is there for the next.
        for name in ("next", "later"):
            await create(node, name, wants(2))
            await node.ready(name)
            await node.delete(name)
            await node.gone(name)


async def test_a_container_whose_devices_cannot_be_reset_waits(node: NodeUnderTest) -> None:
    async with device_plugin(folder(node), GPU, TWO, pre_start_required=True) as plugin:
        await counted(node, "2", "2")
        await create(node, "slow", wants(1, command=["sh", "-c", "exit 1"]))
        await node.wait("slow", lambda p: any(s.restart_count for s in p.status.container_statuses))
        plugin.fail = "not now"
        await node.wait("slow", lambda p: waiting(p) == "CreateContainerConfigError")
        plugin.fail = ""
        before = len(plugin.calls)
        await node.wait("slow", lambda p: len(plugin.calls) > before)
        assert [ids for call, ids in plugin.calls if call == "Allocate"] == [["a"]]  # once, whatever restarts


async def test_the_next_agent_knows_who_has_what(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    async with device_plugin(folder(node), GPU, TWO) as plugin:
        await counted(node, "2", "2")
        await create(node, "stays", wants(1))
        await node.ready("stays")
        await node.stop()
        await node.start()
        # The socket is another one: who does not register again is not there.
        await counted(node, "0", "0")
        await plugin.stop()
        await plugin.start()
        await plugin.register()
        await counted(node, "2", "2")
        await create(node, "second", wants(1))
        await node.ready("second")
        assert [env(config)["DEVICES"] for config in made(runtime)] == ["a", "b"]
        assert (await node.get("stays")).status.container_statuses[0].restart_count == 0
    written = json.loads((folder(node) / "kubelet_internal_checkpoint").read_text())
    entries = written["Data"]["PodDeviceEntries"]
    assert sorted(entry["DeviceIDs"]["-1"][0] for entry in entries) == ["a", "b"]
    assert written["Data"]["RegisteredDevices"] == {GPU: ["a", "b"]}


@pytest.mark.parametrize(
    ("version", "resource", "message"),
    [
        ("v1alpha", GPU, 'requested API version "v1alpha" is not supported by kubelet'),
        ("v1beta1", "gpu", 'the ResourceName "gpu" is invalid'),
        ("v1beta1", "kubernetes.io/gpu", 'the ResourceName "kubernetes.io/gpu" is invalid'),
    ],
)
async def test_plugins_that_cannot_work_are_refused(
    node: NodeUnderTest, version: str, resource: str, message: str
) -> None:
    plugin = DevicePlugin(folder(node), GPU, TWO)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await plugin.register(version, resource)
    assert message in (refused.value.details() or "")


async def test_what_somebody_wrote_into_the_nodes_status_stays_and_counts(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    async with agent_node(tmp_path, runtime, api, clock=clock, status_update_period=0.2) as node:
        name = node.config.node_name
        body = {"status": {"capacity": {"example.com/dongle": "1"}}}
        await node.client.patch(core_v1.Node, name, "", body, subresource="status")
        await counted(node, "1", "1", "example.com/dongle")
        limits = {"limits": {"example.com/dongle": "1"}}
        await create(node, "first", container(resources=limits))
        await node.ready("first")
        await create(node, "second", container(resources=limits))
        pod = await node.wait("second", lambda p: p.status.phase == "Failed")
        assert pod.status.reason == "OutOfexample.com/dongle"
        # A node that never had plugins begins with nothing of what its object says.
        await node.stop()
        await node.start()
        await counted(node, "0", "0", "example.com/dongle")
        await node.client.patch(core_v1.Node, name, "", body, subresource="status")
        await counted(node, "1", "1", "example.com/dongle")


async def test_a_plugin_may_show_up_in_the_plugins_registry_instead(node: NodeUnderTest, tmp_path: Path) -> None:
    plugin = DevicePlugin(tmp_path, GPU, TWO, pre_start_required=True)
    await plugin.start()
    try:
        socket = node.config.root_dir / "plugins_registry" / "g.sock"
        async with RegistrationSocket(socket, DEVICE, GPU, str(plugin.socket), ("v1beta1",)) as registration:
            assert await registration.registration_errors.get() == ""
            await counted(node, "2", "2")
            await create(node, "one", wants(1))
            await node.ready("one")
            # Its options were asked for, as this way of registering does not tell them.
            assert [call for call, _ in plugin.calls] == ["GetDevicePluginOptions", "Allocate", "PreStartContainer"]
        await counted(node, "2", "0")
    finally:
        await plugin.stop()
