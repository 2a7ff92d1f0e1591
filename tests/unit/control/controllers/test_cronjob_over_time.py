"""CronJobs over hours of virtual time: the real controller, on an API in memory whose Jobs end when the test says so."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from control.controllers.cronjob import CronJobController
from kube import serialize
from kube.api import batch_v1, meta_v1
from kube.client import Response
from kube.clock import format_time
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.memory_api import MemoryAPI
from tests.support.working import working

CRONS = "/apis/batch/v1/namespaces/default/cronjobs/c"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


class World(MemoryAPI):
    """One CronJob and the Jobs that are made for it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.jobs: dict[str, batch_v1.Job] = {}
        self.made: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.cron = batch_v1.CronJob()
        self.lose_status = False
        """Refuse to write the CronJob's status, as when the controller is killed before it."""

    def place(self, **spec: Any) -> None:
        """Make the CronJob, or give it another spec."""
        stamp = self.cron.metadata.creation_timestamp or format_time(self.clock.now())
        self.cron = batch_v1.CronJob(
            metadata=meta_v1.ObjectMeta(name="c", namespace="default", uid="u", creation_timestamp=stamp),
            spec=batch_v1.CronJobSpec(**({"schedule": "*/10 * * * *"} | spec)),
            status=self.cron.status,
        )
        self.put(self.cron)

    def end(self, name: str, how: str = "Complete") -> None:
        """Let a Job end."""
        now = format_time(self.clock.now())
        status = batch_v1.JobStatus(
            conditions=[batch_v1.JobCondition(type=how, status="True")],
            start_time=now,
            completion_time=now if how == "Complete" else None,
        )
        self.jobs[name] = batch_v1.Job(metadata=self.jobs[name].metadata, spec=self.jobs[name].spec, status=status)
        self.put(self.jobs[name])

    def reported(self, reason: str) -> list[str]:
        return [message for why, message in self.events if why == reason]

    @property
    def moments(self) -> list[str]:
        """The scheduled moments of all Jobs that were made."""
        return self.made

    @property
    def active(self) -> list[str]:
        return [reference.name or "" for reference in self.cron.status.active]

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        if method in ("POST", "PATCH") and "/events" in path:
            event = json.loads(body)
            self.events.append((event.get("reason", ""), event.get("message", "")))
            return Response(201, {}, body)
        if method == "POST" and path == JOBS:
            job = serialize.convert(json.loads(body), batch_v1.Job)
            name = job.metadata.name or ""
            if name in self.jobs:
                raise StatusError(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
            job.metadata.creation_timestamp = format_time(self.clock.now())
            self.jobs[name] = job
            self.made.append(job.metadata.annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"])
            self.put(job)
            return Response(201, {}, serialize.encode(job))
        if path.startswith(JOBS + "/") and (name := path.rpartition("/")[2]):
            if name not in self.jobs:
                raise StatusError(404, "NotFound", f'jobs.batch "{name}" not found')
            if method == "DELETE":
                self.remove(self.jobs.pop(name))
                return Response(200, {}, b"{}")
            return Response(200, {}, serialize.encode(self.jobs[name]))
        if path == CRONS + "/status":
            if self.lose_status:
                raise StatusError(503, "ServiceUnavailable", "gone")
            self.cron = serialize.convert(json.loads(body), batch_v1.CronJob)
            self.put(self.cron)
            return Response(200, {}, serialize.encode(self.cron))
        return await super().request(method, path, body=body, **options)


@contextlib.asynccontextmanager
async def world(start: datetime = datetime(2026, 1, 1, tzinfo=UTC), **spec: Any) -> AsyncIterator[World]:
    clock = FakeClock(start)
    made = World(clock)
    made.place(**spec)
    async with controller(made):
        yield made


def controller(made: World) -> contextlib.AbstractAsyncContextManager[None]:
    return working(made, made.clock, CronJobController)


async def minutes(made: World, count: float) -> None:
    """Let time go by, in steps that let each write be seen before the next moment."""
    for _ in range(int(count * 2)):
        await made.clock.advance(30)


def at(hour: int, minute: int) -> str:
    return f"2026-01-01T{hour:02}:{minute:02}:00Z"


def name(hour: int, minute: int) -> str:
    return f"c-{int(datetime(2026, 1, 1, hour, minute, tzinfo=UTC).timestamp()) // 60}"


async def test_allow_starts_every_run_beside_those_that_still_work() -> None:
    async with world() as made:
        await minutes(made, 35)
        assert made.moments == [at(0, 10), at(0, 20), at(0, 30)]
        assert made.active == [name(0, 10), name(0, 20), name(0, 30)]
        assert made.cron.status.last_schedule_time == at(0, 30)
        assert made.reported("SuccessfulCreate") == [f"Created job {each}" for each in made.active]


async def test_forbid_leaves_runs_out_until_the_one_that_works_has_ended_and_then_takes_up_the_last() -> None:
    async with world(concurrency_policy="Forbid") as made:
        await minutes(made, 34)
        assert made.moments == [at(0, 10)] and made.active == [name(0, 10)]
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        assert text in made.reported("JobAlreadyActive")
        made.end(name(0, 10))
        await minutes(made, 1)
        assert made.moments == [at(0, 10), at(0, 30)]
        assert f"Saw completed job: {name(0, 10)}, condition: Complete" in made.reported("SawCompletedJob")
        assert made.active == [name(0, 30)]


async def test_forbid_with_a_deadline_does_not_take_up_what_is_later_than_that() -> None:
    async with world(concurrency_policy="Forbid", starting_deadline_seconds=120) as made:
        await minutes(made, 34)
        made.end(name(0, 10))
        await minutes(made, 4)
        assert made.moments == [at(0, 10)]
        await minutes(made, 4)
        assert made.moments == [at(0, 10), at(0, 40)]


async def test_replace_deletes_the_run_that_still_works() -> None:
    async with world(concurrency_policy="Replace") as made:
        await minutes(made, 35)
        assert made.moments == [at(0, 10), at(0, 20), at(0, 30)]
        assert made.active == [name(0, 30)] and list(made.jobs) == [name(0, 30)]
        assert made.reported("SuccessfulDelete") == [f"Deleted job {name(0, 10)}", f"Deleted job {name(0, 20)}"]


async def test_a_job_made_by_hand_from_a_cron_job_is_neither_waited_for_nor_replaced() -> None:
    for policy in ("Forbid", "Replace"):
        async with world(concurrency_policy=policy) as made:
            owner = meta_v1.OwnerReference(api_version="batch/v1", kind="CronJob", name="c", uid="u", controller=True)
            mine = batch_v1.Job(
                metadata=meta_v1.ObjectMeta(name="by-hand", namespace="default", owner_references=[owner])
            )
            made.jobs["by-hand"] = mine
            made.put(mine)
            await minutes(made, 15)
            assert made.moments == [at(0, 10)] and "by-hand" in made.jobs
            assert "Saw a job that the controller did not create or forgot: by-hand" in made.reported("UnexpectedJob")


async def test_only_so_much_history_is_kept_of_each_kind() -> None:
    async with world(successful_jobs_history_limit=2, failed_jobs_history_limit=1) as made:
        await minutes(made, 1)
        for turn in range(1, 7):
            await minutes(made, 10)
            made.end(made.active[0], "Complete" if turn % 2 else "Failed")
        await minutes(made, 1)
        assert list(made.jobs) == [name(0, 30), name(0, 50), name(1, 0)]
        assert made.cron.status.last_successful_time == format_time(datetime(2026, 1, 1, 0, 51, tzinfo=UTC))
        assert made.active == []


async def test_after_an_outage_the_last_run_is_started_and_a_long_outage_is_reported() -> None:
    clock = FakeClock()
    made = World(clock)
    made.place(schedule="* * * * *")
    await clock.advance(99 * 60 + 30)
    async with controller(made):
        await minutes(made, 0.5)
        assert made.moments[0] == at(1, 39) and made.reported("TooManyMissedTimes") == []
    await clock.advance(102 * 60)
    async with controller(made):
        await minutes(made, 0.5)
        text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        assert made.reported("TooManyMissedTimes") == [text]
        assert made.moments[-1] == at(3, 22)


async def test_within_a_deadline_a_long_outage_is_none() -> None:
    clock = FakeClock()
    made = World(clock)
    made.place(schedule="* * * * *", starting_deadline_seconds=200)
    await clock.advance(300 * 60 + 30)
    async with controller(made):
        await minutes(made, 0.5)
        assert made.moments[0] == at(5, 0) and made.reported("TooManyMissedTimes") == []


async def test_a_controller_that_died_after_it_made_a_job_knows_it_again() -> None:
    clock = FakeClock()
    made = World(clock)
    made.place()
    async with controller(made):
        made.lose_status = True
        await minutes(made, 10.5)
        assert made.moments == [at(0, 10)] and made.active == []
    made.lose_status = False
    async with controller(made):
        await minutes(made, 1)
        assert made.moments == [at(0, 10)] and made.active == [name(0, 10)]
        assert made.cron.status.last_schedule_time == at(0, 10)


async def test_a_suspended_one_rests_and_takes_up_the_last_run_when_it_goes_on() -> None:
    async with world(suspend=True) as made:
        await minutes(made, 45)
        assert made.moments == []
        made.place(suspend=False)
        await minutes(made, 1)
        assert made.moments == [at(0, 40)]


async def test_another_schedule_is_followed_from_then_on() -> None:
    async with world() as made:
        await minutes(made, 12)
        made.place(schedule="*/15 * * * *")
        await minutes(made, 35)
        assert made.moments == [at(0, 10), at(0, 15), at(0, 30), at(0, 45)]


async def test_every_counts_from_the_run_before() -> None:
    async with world(schedule="@every 25m") as made:
        await minutes(made, 80)
        assert made.moments == [at(0, 25), at(0, 50), at(1, 15)]


async def test_an_hour_that_the_clocks_repeat_has_its_runs_twice() -> None:
    # On 25 October 2026 at 03:00 CEST the clocks of Berlin go back to 02:00 CET.
    start = datetime(2026, 10, 25, 0, 15, tzinfo=UTC)
    async with world(start, schedule="30 * * * *", time_zone="Europe/Berlin") as made:
        await minutes(made, 150)
        assert made.moments == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"]


async def test_an_hour_that_the_clocks_skip_has_no_runs() -> None:
    # On 29 March 2026 at 02:00 CET the clocks of Berlin go on to 03:00 CEST.
    start = datetime(2026, 3, 29, 0, 15, tzinfo=UTC)
    async with world(start, schedule="30 1-3 * * *", time_zone="Europe/Berlin") as made:
        await minutes(made, 180)
        assert made.moments == ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]


async def test_deleted_and_invalid_ones_start_nothing_and_report_the_reason() -> None:
    async with world(schedule="0 0 30 2 *") as made:
        why = "invalid schedule: 0 0 30 2 * : time difference between two schedules is less than 1 second"
        assert why in made.reported("InvalidSchedule")
        made.place(time_zone="No/Where", suspend=True)
        await minutes(made, 30)
        assert 'invalid timeZone: "No/Where": unknown time zone No/Where' in made.reported("UnknownTimeZone")
        made.cron.metadata.deletion_timestamp = format_time(made.clock.now())
        made.cron.spec.time_zone = None
        made.cron.spec.suspend = False
        made.put(made.cron)
        await minutes(made, 30)
        assert made.moments == []


async def test_a_job_of_somebody_else_with_the_name_of_a_run_is_left_alone() -> None:
    async with world() as made:
        stranger = batch_v1.Job(metadata=meta_v1.ObjectMeta(name=name(0, 10), namespace="default", uid="other"))
        made.jobs[name(0, 10)] = stranger
        made.put(stranger)
        await minutes(made, 25)
        assert made.moments == [at(0, 20)]
        assert made.jobs[name(0, 10)] is stranger


async def test_a_run_that_the_clock_jumped_over_begins_within_minutes() -> None:
    async with world(schedule="0 0 * * *") as made:
        made.clock.suspend(25 * 3600)  # or the clock was set: what sleeps does not notice
        await minutes(made, 6)
        assert made.moments == ["2026-01-02T00:00:00Z"]
