"""What goes on beside pods: processors are kept right, and claims of pods that are gone put back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agent.managers.container_manager import SWEEP_SECONDS, ContainerManager
from agent.managers.errors import DynamicResourceError
from agent.managers.options import ManagerOptions
from kube.clock import FakeClock


class Claims:
    """Claims of pods that are gone: those of the driver `mute` are not answered for 45 s and then not put back."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.drivers = {f"mute-{n}": ("mute",) for n in range(30)} | {f"well-{n}": ("well",) for n in range(3)}

    @property
    def owners(self) -> set[str]:
        return set(self.drivers)

    def drivers_of(self, uid: str) -> tuple[str, ...]:
        return self.drivers[uid]

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
    tasks = [asyncio.create_task(managers.run(None, list)), asyncio.create_task(managers.run_claims(list))]  # type: ignore[arg-type]
    await clock.advance(100)
    assert reconciler.applied == [10.0 * n for n in range(11)]
    assert {uid.partition("-")[0] for uid in claims.owners} == {"mute"}
    claims.drivers["well-again"] = ("well",)
    await clock.advance(SWEEP_SECONDS)
    assert "well-again" not in claims.owners
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
