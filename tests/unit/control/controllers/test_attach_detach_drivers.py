"""Attachments of volumes whose CSIDriver object changes: none is created then, and existing ones are deleted after a minute."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from control.controllers.attach_detach import AttachDetachController
from control.controllers.attach_detach.requirements import DRIVER_CHANGE_SECONDS
from kube.api import storage_v1
from tests.support.clock import FakeClock, settle
from tests.support.working import working
from tests.unit.control.controllers.test_attach_detach_lag import DRIVER, World


class Drivers(World):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()

    async def say(self, **spec: bool) -> None:
        self.put(msgspec.convert({"metadata": {"name": DRIVER}, "spec": spec}, storage_v1.CSIDriver))
        await settle(100)

    async def forget(self) -> None:
        await self.client().delete(storage_v1.CSIDriver, DRIVER)
        await settle(100)


@pytest.fixture
async def world() -> AsyncIterator[Drivers]:
    made = Drivers()
    async with working(made, made.clock, AttachDetachController):
        yield made


async def test_a_pod_has_a_minute_to_start_with_the_attachment_that_its_driver_no_longer_requires(
    world: Drivers,
) -> None:
    await world.say(attachRequired=True)
    await world.pod("first", "a")
    await world.forget()
    await world.say(attachRequired=False)
    await world.attached()
    await world.clock.advance(DRIVER_CHANGE_SECONDS - 1)
    assert world.on == ["a"] and world.reported("a")
    await world.clock.advance(2)
    assert world.on == [] and world.reported_at_deletion == [[]]


async def test_nothing_is_attached_for_a_driver_that_requires_no_attachment(world: Drivers) -> None:
    await world.say(attachRequired=False)
    await world.pod("first", "a")
    assert world.on == []
    await world.clock.advance(2 * DRIVER_CHANGE_SECONDS)
    assert world.on == []
    await world.forget()
    assert world.on == ["a"], "attaching is the default"


async def test_a_volume_without_pods_is_detached_at_once_also_in_that_minute(world: Drivers) -> None:
    await world.pod("first", "a")
    await world.say(attachRequired=False)
    assert world.on == ["a"]
    await world.gone("first")
    assert world.on == []


async def test_a_node_that_uses_the_volume_keeps_its_attachment_until_its_last_pod_is_gone(world: Drivers) -> None:
    await world.pod("first", "a")
    await world.attached()
    await world.uses(True)
    await world.say(attachRequired=False)
    await world.clock.advance(1000)
    assert world.on == ["a"] and world.reported("a")
    await world.gone("first")
    await world.uses(False)
    assert world.on == []


async def test_a_driver_that_requires_attachments_again_keeps_them(world: Drivers) -> None:
    await world.pod("first", "a")
    await world.say(attachRequired=False)
    await world.clock.advance(DRIVER_CHANGE_SECONDS - 1)
    await world.say(attachRequired=True)
    await world.clock.advance(1000)
    assert world.on == ["a"]
    await world.say(attachRequired=False)
    await world.clock.advance(DRIVER_CHANGE_SECONDS - 1)
    assert world.on == ["a"], "the minute starts again"
