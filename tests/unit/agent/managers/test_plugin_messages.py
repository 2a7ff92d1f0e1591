"""Limits of the messages of device plugins and DRA drivers, and of how often they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest

from agent.claims import messages as claim_messages
from agent.claims.driver import DRAClient
from agent.claims.drivers import DRADrivers
from agent.csi.driver import CSIClient
from agent.devices import messages as m
from agent.devices.manager import MOST_RESOURCES, DeviceManager
from agent.devices.plugin import LARGEST_ANNOTATIONS, LARGEST_RESPONSE, Plugin
from agent.devices.pool import Device, Pool
from agent.devices.registration import DevicePluginRegistration
from agent.devices.wire import deviceplugin_pb2 as wire
from agent.managers.hints import mask_of
from agent.plugins.handler import PluginError
from agent.plugins.registration import PluginClient
from cri.channel import PLUGIN_BYTES, PLUGIN_DEVICES
from cri.errors import CRIError
from kube.client import Client
from tests.support.clock import FakeClock


class Answering:
    """A channel with one answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def unary(self, *_: Any) -> Any:
        return self._answer

    async def stream(self, *_: Any, deadline: float | None) -> AsyncIterator[Any]:
        yield self._answer


def plugin(answer: Any) -> Plugin:
    found = Plugin("example.com/gpu", Path("/nowhere"))
    found._channel = cast(Any, Answering(answer))
    return found


async def listed(*devices: Any) -> dict[str, Device]:
    answers = plugin(m.ListAndWatchResponse(devices=devices)).devices()
    return await anext(answers)


def placed(*nodes: int) -> Any:
    return wire.Device(
        ID="a", health="Healthy", topology=wire.TopologyInfo(nodes=[wire.NUMANode(ID=node) for node in nodes])
    )


async def test_a_limited_number_of_devices_counts() -> None:
    found = await listed(*(wire.Device(ID=f"{number:05}", health="Healthy") for number in range(PLUGIN_DEVICES + 5)))
    assert len(found) == PLUGIN_DEVICES and max(found) == f"{PLUGIN_DEVICES - 1:05}"


async def test_numa_nodes_that_no_machine_has_do_not_count() -> None:
    found = await listed(placed(-1, 0, 63, 64, 1 << 33, 1 << 40))
    assert found["a"].nodes == (0, 63) and mask_of(found["a"].nodes).bit_length() == 64
    assert (await listed(placed(1 << 40)))["a"].nodes == ()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"envs": {"A": "a" * LARGEST_RESPONSE}}, f"{LARGEST_RESPONSE} bytes are allowed"),
        ({"annotations": {"a": "a" * LARGEST_ANNOTATIONS}}, f"{LARGEST_ANNOTATIONS} bytes are allowed"),
        ({"annotations": {f"{n}": "" for n in range(LARGEST_ANNOTATIONS // 32)}}, "bytes are allowed"),
    ],
)
async def test_an_allocation_of_a_larger_response_fails(answer: dict[str, Any], message: str) -> None:
    response = m.AllocateResponse(container_responses=[m.ContainerAllocateResponse(**answer)])
    with pytest.raises(CRIError, match=message):
        await plugin(response).allocate(["a"])


async def test_the_channels_of_plugins_have_upstreams_limit_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = list[int]()

    def insecure_channel(target: str, options: list[tuple[str, Any]]) -> None:
        limits.append(dict(options)["grpc.max_receive_message_length"])

    monkeypatch.setattr(grpc.aio, "insecure_channel", insecure_channel)
    Plugin("example.com/gpu", Path("/nowhere"))
    DRAClient("d", "/nowhere", "v1")
    CSIClient("d", "/nowhere")
    PluginClient(Path("/nowhere"))
    assert limits == [PLUGIN_BYTES] * 4 == [4 << 20] * 4


class Sending:
    """A plugin that sends as often as it is read."""

    resource, socket = "example.com/gpu", Path("/nowhere")

    def __init__(self) -> None:
        self.sent = 0

    async def devices(self) -> AsyncIterator[dict[str, Device]]:
        while True:
            self.sent += 1
            yield {"a": Device(healthy=self.sent % 2 == 0)}

    async def watch_health(self, _: str) -> AsyncIterator[list[Any]]:
        while True:
            self.sent += 1
            yield []

    async def close(self) -> None:
        pass


async def test_messages_about_devices_are_read_once_a_second(tmp_path: Path) -> None:
    clock, sending = FakeClock(), Sending()
    changes = list[None]()
    manager = DeviceManager(tmp_path, (0,), clock=clock, changed=lambda: changes.append(None))
    task = asyncio.create_task(manager.follow(cast(Plugin, sending)))
    try:
        while not changes:
            await asyncio.sleep(0)
        await clock.advance(2.5)
        assert 1 <= sending.sent <= 4
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_messages_about_the_health_of_claimed_devices_are_read_once_a_second() -> None:
    clock, sending = FakeClock(), Sending()
    drivers = DRADrivers(cast(Client, None), "node", clock=clock)
    sending.name = "d"  # type: ignore[attr-defined]
    task = asyncio.create_task(drivers._watch(cast(DRAClient, sending), "v1beta1"))
    try:
        await clock.advance(2.5)
        assert 1 <= sending.sent <= 4
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_health_of_a_limited_number_of_claimed_devices_counts() -> None:
    answer = claim_messages.NodeWatchResourcesResponse()
    for _ in range(PLUGIN_DEVICES + 5):
        answer.devices.add()
    driver = DRAClient("d", "/nowhere", "v1")
    driver._channel = cast(Any, Answering(answer))
    assert len(await anext(driver.watch_health("v1beta1"))) == PLUGIN_DEVICES


def registration(tmp_path: Path, known: int = 0) -> DevicePluginRegistration:
    manager = DeviceManager(tmp_path, (0,), clock=FakeClock(), changed=lambda: None)
    names = [f"example.com/r{number}" for number in range(known)]
    manager._pools, manager.removed = {name: Pool(name) for name in names[::2]}, set(names[1::2])
    return DevicePluginRegistration(manager)


def test_names_of_resources_have_the_lengths_of_a_qualified_name(tmp_path: Path) -> None:
    given = registration(tmp_path)
    given.validate("d" * 244 + "/" + "n" * 63, "", ["v1beta1"])
    for name in ("d" * 245 + "/n", "d/" + "n" * 64):
        with pytest.raises(PluginError, match="is invalid"):
            given.validate(name, "", ["v1beta1"])


def test_a_limited_number_of_resources_is_registered(tmp_path: Path) -> None:
    given = registration(tmp_path, MOST_RESOURCES)
    for known in ("example.com/r0", "example.com/r1"):
        given.validate(known, "", ["v1beta1"])
    with pytest.raises(PluginError, match=f"{MOST_RESOURCES} are allowed"):
        given.validate("example.com/new", "", ["v1beta1"])
