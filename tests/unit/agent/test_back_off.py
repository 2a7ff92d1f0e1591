"""Back-off of restarts, and durations in messages."""

from __future__ import annotations

import pytest

from agent.backoff import BackOff
from agent.pods.crash_loop import CrashLoopBackOff
from agent.runtime_records import ContainerRecord, State
from kube import duration
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock

POD = core_v1.Pod(
    metadata=meta_v1.ObjectMeta(name="p", uid="u"),
    spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", image="i")]),
)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.3504, "350ms"), (1.2, "1.2s"), (10, "10s"), (80, "1m20s"), (300, "5m0s")]
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert duration.render(seconds) == text


# -- back-off ---------------------------------------------------------------------------------------------------------
def test_a_back_off_doubles_to_its_limit_and_resets_after_ten_quiet_minutes() -> None:
    back_off = BackOff(10.0, 300.0)
    assert back_off.ready_at("a", 5.0) == 5.0  # the first restart is at once
    delays = [back_off.next("a", float(at)) for at in range(8)]
    assert delays == [10, 20, 40, 80, 160, 300, 300, 300]
    assert back_off.ready_at("a", 100.0) == 400.0
    assert back_off.ready_at("a", 608.0) == 608.0
    assert back_off.next("a", 608.0) == 10


# -- steps of the wall clock ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("step", [-10 * 365 * 86400.0, -3600.0, 3600.0, 10 * 365 * 86400.0])
async def test_a_step_of_the_clock_changes_no_restarts_delay(step: float) -> None:
    clock = FakeClock()
    loop = CrashLoopBackOff(clock, 300.0)

    def exited(number: int) -> ContainerRecord:
        return ContainerRecord(id=str(number), name="c", state=State.EXITED, finished_at=clock.now().timestamp())

    def left(record: ContainerRecord) -> float:
        ready = loop.restart_at(POD, "c", record)
        return ready and ready - clock.now().timestamp()

    first = exited(1)
    assert left(first) == 0
    loop.count(POD, "c", first)
    second = exited(2)
    assert left(second) == pytest.approx(10)
    await clock.advance(4)
    clock.step(step)
    assert left(second) == pytest.approx(6)
    await clock.advance(6)
    assert left(second) == 0
    loop.count(POD, "c", second)
    assert left(exited(3)) == pytest.approx(20), "the step has not reset the count either"


def test_a_container_that_ended_at_a_time_to_come_waits_no_longer_than_its_delay() -> None:
    clock = FakeClock()
    loop = CrashLoopBackOff(clock, 300.0)
    now = clock.now().timestamp()
    records = [ContainerRecord(id=str(n), name="c", state=State.EXITED, finished_at=now + 3600 * n) for n in range(2)]
    loop.count(POD, "c", records[0])
    assert loop.restart_at(POD, "c", records[1]) == pytest.approx(now + 10)
