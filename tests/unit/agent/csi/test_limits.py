"""An interval of reading a driver's volume limit applies when it is set, changed or removed, not only with the driver."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import msgspec

from agent.csi.limits import Limits
from kube.api import storage_v1
from tests.support.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI


class Drivers:
    """One registered driver, which counts how often it is called."""

    def __init__(self) -> None:
        self.changed, self.calls, self.limits = asyncio.Event(), 0, list[int]()
        self.removed = False

    def names(self) -> list[str]:
        return ["d"]

    def find(self, name: str) -> Drivers | None:
        return None if self.removed else self

    async def info(self) -> Any:
        self.calls += 1
        return SimpleNamespace(node_id="n", max_volumes_per_node=5, accessible_topology=SimpleNamespace(segments={}))

    async def update(self, name: str, node_id: str, topology: dict[str, str], limit: int) -> None:
        """As the CSINode."""
        self.limits.append(limit)


def about(period: int | None) -> storage_v1.CSIDriver:
    spec = {"nodeAllocatableUpdatePeriodSeconds": period} if period else {}
    return msgspec.convert({"metadata": {"name": "d"}, "spec": spec}, storage_v1.CSIDriver)


async def test_an_interval_applies_when_it_is_set() -> None:
    api, clock, drivers = LaggingAPI(), FakeClock(), Drivers()
    anything: Any = drivers
    api.put(about(None))
    running = asyncio.create_task(Limits(api.client(), anything, anything, clock=clock).run())
    try:
        await settle(100)
        await clock.advance(60)
        assert drivers.calls == 0
        for period, calls in ((10, 6), (30, 2), (None, 0)):
            api.put(about(period))
            await settle(100)
            before = drivers.calls
            await clock.advance(60)
            assert drivers.calls - before == calls, period
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_a_driver_that_is_removed_during_the_call_is_not_recorded_again() -> None:
    drivers = Drivers()
    anything: Any = drivers
    limits = Limits(LaggingAPI().client(), anything, anything, clock=FakeClock())
    await limits.refresh("d")
    assert drivers.limits == [5]
    answer = drivers.info

    async def info() -> Any:
        drivers.removed = True
        return await answer()

    anything.info = info
    await limits.refresh("d")
    assert drivers.calls == 2 and drivers.limits == [5]
