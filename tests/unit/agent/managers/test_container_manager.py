"""Background work of the container manager: CPU sets are corrected, and claims of deleted pods released."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent.container_manager import claim_cleanup
from agent.container_manager.manager import SWEEP_SECONDS, ContainerManager
from agent.devices.checkpoint import Allocation
from agent.devices.pool import Device, Pool
from agent.managers.checkpoint_writer import CheckpointWriter
from agent.managers.errors import DynamicResourceError
from agent.managers.options import ManagerOptions
from tests.support.clock import FakeClock, settle
from tests.unit.agent.pods import pod


class Claims:
    """Claims of pods that are gone: those of the driver `mute` are not answered for 45 s and then not released."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.checkpoint = CheckpointWriter("claims", lambda: lambda: None)
        self.drivers = {f"mute-{n}": ("mute",) for n in range(30)} | {f"well-{n}": ("well",) for n in range(3)}

    @property
    def owners(self) -> set[str]:
        return set(self.drivers)

    def drivers_of(self, uids: list[str]) -> dict[str, tuple[str, ...]]:
        return {uid: self.drivers[uid] for uid in uids}

    async def unprepare(self, uid: str) -> None:
        if "mute" in self.drivers[uid]:
            await self._clock.sleep(45.0)
            raise DynamicResourceError("NodeUnprepareResources: rpc error: code = DeadlineExceeded")
        del self.drivers[uid]


class CpusetReconciler:
    def __init__(self, clock: FakeClock) -> None:
        self._clock, self.applied = clock, list[float]()

    async def apply(self, runtime: Any, views: Any) -> None:
        self.applied.append(self._clock.monotonic())


async def test_a_claims_driver_that_does_not_answer_holds_up_neither_processors_nor_other_drivers(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    managers = ContainerManager(tmp_path, ManagerOptions(), reserved_cpus=0, clock=clock)
    managers.options = ManagerOptions(cpu_policy="static", cpu_period=10.0)
    managers._claims = claims = Claims(clock)  # type: ignore[assignment]
    managers._cpuset_reconciler = reconciler = CpusetReconciler(clock)  # type: ignore[assignment]
    managers.devices._allocations.add(Allocation("gone", "main", "example.com/card", {}))
    await managers._lock.acquire()  # as an admission does that waits for a device plugin
    tasks = [
        asyncio.create_task(managers.run(None, list)),
        asyncio.create_task(claim_cleanup.run(managers, clock, list)),
    ]  # type: ignore[arg-type]
    await clock.advance(100)
    assert reconciler.applied == [10.0 * n for n in range(11)]
    assert {uid.partition("-")[0] for uid in claims.owners} == {"mute"}
    claims.drivers["well-again"] = ("well",)
    await clock.advance(SWEEP_SECONDS)
    assert "well-again" not in claims.owners
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class HungPlugin:
    """A device plugin that answers nothing."""

    options = SimpleNamespace(preferences=False)

    async def allocate(self, ids: list[str]) -> bytes:
        return await asyncio.get_running_loop().create_future()


async def test_a_pod_without_managed_resources_does_not_wait_for_a_device_plugin_that_hangs(tmp_path: Path) -> None:
    managers = ContainerManager(tmp_path, ManagerOptions(), reserved_cpus=0, clock=FakeClock())
    pool = managers.devices._pools["example.com/card"] = Pool("example.com/card")
    pool.devices = {"card-0": Device(True)}
    managers.devices._plugins["example.com/card"] = HungPlugin()  # type: ignore[assignment]
    asks = pod({"name": "main", "resources": {"limits": {"example.com/card": "1"}}})
    waiting = asyncio.create_task(managers.admit(asks, ()))
    await settle()
    assert not waiting.done()
    plain = pod({"name": "main", "resources": {"limits": {"cpu": "1"}}}, metadata={"uid": "uid-2"})
    async with asyncio.timeout(5):
        assert await managers.admit(plain, ()) is None
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
