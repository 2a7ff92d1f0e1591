"""Scheduled snapshots in virtual time: their times, repetitions and reports."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from kube import cron
from kube.clock import parse_time
from tests.support.clock import FakeClock
from wherry import snapshot_schedule, snapshot_state, snapshot_status
from wherry.settings import Settings
from wherry.snapshot_schedule import SnapshotSchedule, Taken, due
from wherry.snapshot_state import State
from wherry.snapshot_status import Snapshots

HOUR = 3600


def at(text: str) -> float:
    return parse_time(f"2026-01-{text}:00Z").timestamp()


class Machine:
    """An installation whose snapshots are recorded."""

    def __init__(self, folder: Path, schedule: str = "0 3 * * *") -> None:
        self.settings = Settings(prefix=str(folder), node_name="n1", snapshot_schedule=schedule)
        self.settings.save()
        snapshot_state.path_of(self.settings).parent.mkdir(parents=True)
        self.clock, self.taken, self.problem = FakeClock(), list[str](), ""
        self.copy_problem = self.url = ""

    async def take(self, settings: Settings, again: str) -> Taken:
        self.taken.append(f"{self.clock.now():%d %H:%M}" + (f" {again}" if again else ""))
        path = "" if self.problem else again or "/s/a.db"
        return Taken(path=path, size=7, keys=1, revision=2, problem=self.problem or self.copy_problem, url=self.url)

    def start(self) -> asyncio.Task[None]:
        schedule = SnapshotSchedule(self.settings, self.take, self.clock, lambda: UTC)
        return asyncio.create_task(schedule.run(), name="schedule")

    def state(self) -> State:
        return snapshot_state.load(self.settings)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_snapshots_are_taken_at_their_times_and_a_missed_one_after_the_start(machine: Machine) -> None:
    task = machine.start()
    await machine.clock.advance(30 * HOUR)
    assert machine.taken == ["01 03:00", "02 03:00"]
    assert machine.state() == State(
        since=at("01T00:00") + 20, attempted=at("02T03:00"), succeeded=at("02T03:00"), path="/s/a.db", size=7
    )
    task.cancel()
    await machine.clock.advance(30 * HOUR)  # the machine is off: 3 January is missed
    task = machine.start()
    await machine.clock.advance(15 * HOUR)
    assert machine.taken == ["01 03:00", "02 03:00", "03 12:00", "04 03:00"]
    task.cancel()


async def test_one_that_is_missed_before_any_was_taken_is_taken(machine: Machine) -> None:
    task = machine.start()
    await machine.clock.advance(HOUR)
    task.cancel()
    await machine.clock.advance(5 * HOUR)
    task = machine.start()
    await machine.clock.advance(HOUR)
    assert machine.taken == ["01 06:00"]
    task.cancel()


async def test_a_failure_is_repeated_later_each_time_and_counted(machine: Machine) -> None:
    machine.problem = "no room"
    task = machine.start()
    await machine.clock.advance(5.5 * HOUR)
    assert machine.taken == ["01 03:00", "01 03:05", "01 03:15", "01 03:35", "01 04:15", "01 05:15"]
    state = machine.state()
    assert (state.failures, state.problem, state.succeeded) == (6, "no room", 0)
    assert snapshot_schedule.FAILING.values[()] == 6
    machine.problem = ""
    await machine.clock.advance(HOUR)
    assert machine.taken[6:] == ["01 06:15"] and machine.state().failures == 0
    assert snapshot_schedule.SUCCEEDED.values[()] == machine.state().succeeded > 0
    task.cancel()


async def test_a_copy_that_failed_is_repeated_without_another_snapshot_until_one_is_due(tmp_path: Path) -> None:
    """Snapshots of the last hour would take the places of those of the last days."""
    machine = Machine(tmp_path, "0 3,5 * * *")
    machine.copy_problem = "503"
    task = machine.start()
    await machine.clock.advance(4.5 * HOUR)
    again = [f"01 {time} /s/a.db" for time in ("03:05", "03:15", "03:35", "04:15")]
    assert machine.taken == ["01 03:00", *again]
    state = machine.state()
    assert (state.failures, state.succeeded, state.attempted) == (5, at("01T03:00"), at("01T04:15"))
    await machine.clock.advance(HOUR)
    assert machine.taken[5:] == ["01 05:00"] and machine.state().succeeded == at("01T05:00")
    machine.copy_problem, machine.url = "", "s3://b/a.db"
    await machine.clock.advance(HOUR)
    assert machine.taken[6:] == ["01 06:00 /s/a.db"]
    state = machine.state()
    assert state.unfinished == ""
    assert (state.failures, state.problem, state.succeeded, state.copied) == (0, "", at("01T05:00"), at("01T06:00"))
    task.cancel()


async def test_surplus_snapshots_that_cannot_be_deleted_cause_no_others(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.copy_problem, machine.url = "surplus snapshots are not removed: 403", "s3://b/a.db"
    task = machine.start()
    await machine.clock.advance(3.3 * HOUR)
    task.cancel()
    task = machine.start()  # the state is kept
    await machine.clock.advance(HOUR)
    assert machine.taken == ["01 03:00", *(f"01 {time} /s/a.db" for time in ("03:05", "03:15", "03:35", "04:15"))]
    task.cancel()


async def test_changed_options_are_read_without_a_restart(machine: Machine) -> None:
    task = machine.start()
    await machine.clock.advance(HOUR)
    msgspec.structs.replace(machine.settings, snapshot_schedule="off").save()
    await machine.clock.advance(24 * HOUR)
    assert machine.taken == []
    msgspec.structs.replace(machine.settings, snapshot_schedule="30 * * * *").save()
    await machine.clock.advance(60)
    assert machine.taken == ["02 01:00"]  # those of the day were missed
    await machine.clock.advance(HOUR)
    assert machine.taken[1:] == ["02 01:30"]
    task.cancel()


async def test_a_clock_that_is_set_back_delays_nothing(machine: Machine) -> None:
    task = machine.start()
    await machine.clock.advance(4 * HOUR)
    machine.clock.step(-40 * 24 * HOUR)
    await machine.clock.advance(24 * HOUR)
    assert len(machine.taken) == 2
    task.cancel()


def test_times_are_those_of_the_machines_zone() -> None:
    schedule, now = cron.parse("0 3 * * *"), datetime(2026, 7, 1, tzinfo=UTC)
    found = due(schedule, State(since=now.timestamp()), ZoneInfo("Europe/Berlin"))
    assert found == datetime(2026, 7, 1, 1, tzinfo=UTC)


async def test_a_process_that_prints_no_result_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(argv: list[str], **options: object) -> object:
        class Result:
            returncode, stdout, stderr = 1, "", "Traceback\nMemoryError: no memory\n"

        return Result

    monkeypatch.setattr(snapshot_schedule, "run", run)
    taken = await snapshot_schedule.take(Settings(prefix=str(tmp_path)))
    assert taken == Taken(problem="exit status 1: MemoryError: no memory")


def test_the_status_names_the_last_snapshot_the_next_and_a_failure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_status, "machine_zone", lambda: UTC)
    now = datetime(2026, 1, 2, 4, tzinfo=UTC)
    settings = machine.settings

    def shown() -> str:
        found = snapshot_status.read(settings, now)
        assert found is not None
        return snapshot_status.line(found, now)

    assert shown() == "snapshots: no scheduled one yet, the next one at 2026-01-03T03:00:00Z"
    state = State(attempted=at("02T03:00"), succeeded=at("02T03:00"), path="/s/a.db", size=2048)
    snapshot_state.save(settings, state)
    assert shown().startswith("snapshots: the last scheduled one 1 h ago (/s/a.db, 2.0 KiB), the next")
    found = snapshot_status.read(settings, now)
    assert found == Snapshots(
        "2026-01-02T03:00:00Z", "/s/a.db", 2048, "2026-01-03T03:00:00Z", "2026-01-02T03:00:00Z", ""
    )
    snapshot_state.save(settings, msgspec.structs.replace(state, problem="no room", failures=1))
    assert shown().endswith("; FAILED at 2026-01-02T03:00:00Z: no room")
    snapshot_state.path_of(settings).write_text("{")
    assert snapshot_state.load(settings) == State()
    assert snapshot_status.read(msgspec.structs.replace(settings, snapshot_schedule="off"), now) is None
