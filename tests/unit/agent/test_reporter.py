"""Statuses during a sync: at once where they are cheap, and a part of all time where they are not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.pods import reporter
from agent.pods.reporter import LATE_SECONDS, PodReporter
from agent.runtime_records import PodRuntime
from agent.status import rate
from agent.status.writer import StatusWriter
from kube.api import core_v1
from kube.decisions import Decisions
from tests.support.clock import FakeClock, settle
from tests.unit.agent.pods import pod

RUNNING = core_v1.ContainerState(running=core_v1.ContainerStateRunning())


class Reporter(PodReporter):
    """Notes when it makes a status, which takes so many seconds of CPU time."""

    def __init__(self, namespace: str, clock: FakeClock, statuses: StatusWriter, cpu: CPU) -> None:
        given = pod("main", metadata={"namespace": namespace})
        state: Any = SimpleNamespace(pod=given, uid="u", api_pod=None, in_source=False, runtime=PodRuntime())
        deps: Any = SimpleNamespace(clock=clock, writer=statuses, now=lambda: 0.0, startup=SimpleNamespace())
        deps.recorder = SimpleNamespace(decisions=Decisions(None, "kubelet"))
        deps.startup.status_updated = lambda *_: None
        super().__init__(state, deps)
        self.made, self._clock, self._cpu, self.cost = list[float](), clock, cpu, 0.0

    def status(self) -> core_v1.PodStatus:
        self.made.append(self._clock.monotonic())
        self._cpu.used += self.cost
        return core_v1.PodStatus(
            container_statuses=[core_v1.ContainerStatus(name="main", image="i", image_id="i", state=RUNNING)]
        )


class CPU:
    used = 0.0


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> CPU:
    found = CPU()
    monkeypatch.setattr(reporter.time, "thread_time", lambda: found.used)
    return found


async def test_statuses_of_large_pods_during_a_sync_take_a_part_of_all_time(cpu: CPU) -> None:
    clock = FakeClock()
    statuses = StatusWriter(cast(Any, None), clock=clock)
    large = [Reporter("attacker", clock, statuses, cpu) for _ in range(4)]
    small = Reporter("victim", clock, statuses, cpu)
    for each in large:
        each.cost = 0.2
    small.cost = 0.001
    for each in (*large, small):
        each.publish()
    try:
        for _ in range(1000):
            for each in (*large, small):
                each.publish_during_sync()
            await clock.advance(0.1)
        await settle()
        assert len(small.made) == 1001, "each at once"
        seconds = sum(len(each.made) for each in large) * 0.2
        assert 100 * rate.SHARE < seconds < rate.BURST + 100 * rate.SHARE + len(large) * 0.2 + 0.4
        assert all(each.made[-1] > 80 for each in large), "each has its turn"
        large[0].publish()
        assert large[0].made[-1] == clock.monotonic(), "the last of a sync waits for nothing"
    finally:
        for each in (*large, small):
            each.cancel_late()


async def test_a_late_status_comes_after_its_time(cpu: CPU) -> None:
    clock = FakeClock()
    one = Reporter("ns", clock, StatusWriter(cast(Any, None), clock=clock), cpu)
    one.publish_late()
    one.publish_late()
    await settle()
    assert not one.made
    await clock.advance(LATE_SECONDS)
    await settle()
    assert len(one.made) == 1
    one.publish_late()
    one.cancel_late()
    await clock.advance(10)
    await asyncio.sleep(0)
    assert len(one.made) == 1
