"""CronJobs: the moments of schedules, and what is done about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from control.controllers.cronjob.plan import job_name, job_of, plan
from kube.api import batch_v1, core_v1, meta_v1
from kube.clock import format_time, parse_time
from kube.cron import parse


def at(text: str) -> datetime:
    return parse_time(f"{text}Z" if "Z" not in text else text)


@pytest.mark.parametrize("day", ["2026-03-28", "2026-03-29", "2026-10-25", "2026-10-26"])
def test_the_following_moment_is_the_same_whatever_part_of_the_day_has_passed(day: str) -> None:
    zone, schedule = ZoneInfo("Europe/Berlin"), parse("5,40 * * * *")
    start = at(f"{day}T00:00:00Z")
    moments = [start + timedelta(minutes=n) for n in range(26 * 60)]
    local = [moment.astimezone(zone) for moment in moments]
    due = [moment for moment, wall in zip(moments, local, strict=True) if wall.minute in (5, 40)]
    for moment in moments[: 24 * 60 : 7]:
        assert schedule.after(moment, zone) == next(each for each in due if each > moment)


@pytest.mark.parametrize(
    ("schedule", "since", "following"),
    [
        ("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "2026-01-01T00:01:00", "2026-01-01T00:15:00"),
        ("5/20 * * * *", "2026-01-01T00:26:00", "2026-01-01T00:45:00"),
        ("0 3 * * *", "2026-01-01T03:00:00", "2026-01-02T03:00:00"),
        ("0 0 31 * *", "2026-01-31T12:00:00", "2026-03-31T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 * * mon", "2026-01-01T00:00:00", "2026-01-05T00:00:00"),
        ("0 0 13 * 5", "2026-01-03T00:00:00", "2026-01-09T00:00:00"),
        ("0 0 */10 * 5", "2026-01-03T00:00:00", "2026-01-09T00:00:00"),
        ("0 0 * * 5", "2026-01-03T00:00:00", "2026-01-09T00:00:00"),
        ("0 0 1-7 * */2", "2026-01-08T00:00:00", "2026-01-10T00:00:00"),
        ("0 0 1-7 * *", "2026-01-08T00:00:00", "2026-02-01T00:00:00"),
        ("30 6,18 * jun-aug sun", "2026-01-01T00:00:00", "2026-06-07T06:30:00"),
        ("@hourly", "2026-01-01T00:59:59", "2026-01-01T01:00:00"),
        ("@yearly", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@every 1h30m", "2026-01-01T00:00:00", "2026-01-01T01:30:00"),
    ],
)
def test_a_schedule_means_moments(schedule, since, following) -> None:
    assert parse(schedule).after(at(since)) == at(following)


def test_a_moment_that_never_comes_is_none() -> None:
    assert parse("0 0 30 2 *").after(at("2026-01-01T00:00:00")) is None


@pytest.mark.parametrize("bad", ["", "* * * *", "60 * * * *", "* 24 * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"])
def test_what_is_no_schedule_is_refused(bad) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(bad)


def test_time_zones_and_daylight_saving() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert parse("0 9 * * *").after(at("2026-01-01T00:00:00"), berlin) == at("2026-01-01T08:00:00")
    assert parse("0 9 * * *").after(at("2026-07-01T00:00:00"), berlin) == at("2026-07-01T07:00:00")
    # 02:30 does not exist on 29 March 2026.
    assert parse("30 2 * * *").after(at("2026-03-29T00:00:00"), berlin) == at("2026-03-30T00:30:00")
    # 02:30 is there twice on 25 October 2026.
    assert parse("30 2 * * *").after(at("2026-10-25T00:00:00"), berlin) == at("2026-10-25T00:30:00")
    assert parse("30 2 * * *").after(at("2026-10-25T00:30:00"), berlin) == at("2026-10-25T01:30:00")
    assert parse("30 2 * * *").after(at("2026-10-25T01:30:00"), berlin) == at("2026-10-26T01:30:00")
    half_hours = parse("*/30 * * * *").upcoming(at("2026-10-24T23:45:00"), berlin)
    assert [format_time(next(half_hours))[11:16] for _ in range(5)] == ["00:00", "00:30", "01:00", "01:30", "02:00"]
    # Half an hour is repeated on Lord Howe Island; midnight does not exist on a day of Cairo's.
    lord_howe = ZoneInfo("Australia/Lord_Howe")
    assert parse("45 1 * * *").after(at("2026-04-04T14:45:00"), lord_howe) == at("2026-04-04T15:15:00")
    cairo = ZoneInfo("Africa/Cairo")
    assert parse("0 0 * * *").after(at("2026-04-22T23:00:00"), cairo) == at("2026-04-24T21:00:00")


def cron(schedule: str = "*/10 * * * *", created: str = "2026-01-01T00:00:00Z", **spec) -> batch_v1.CronJob:
    template = batch_v1.JobTemplateSpec(
        metadata=meta_v1.ObjectMeta(labels={"a": "b"}), spec=batch_v1.JobSpec(parallelism=2)
    )
    return batch_v1.CronJob(
        metadata=meta_v1.ObjectMeta(name="c", namespace="default", uid="uid-c", creation_timestamp=created),
        spec=batch_v1.CronJobSpec(schedule=schedule, job_template=template, **spec),
    )


def run(name: str, end: str = "", started: str = "2026-01-01T00:10:00Z") -> batch_v1.Job:
    conditions = [batch_v1.JobCondition(type=end, status="True")] if end else []
    return batch_v1.Job(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        status=batch_v1.JobStatus(conditions=conditions, start_time=started, completion_time=started if end else None),
    )


def reasons(todo) -> list[str]:
    return [reason for _, reason, _ in todo.events]


def test_nothing_is_started_before_the_first_moment_and_the_key_sleeps_until_then() -> None:
    todo = plan(cron(), [], at("2026-01-01T00:09:00"))
    assert todo.start is None and todo.again == pytest.approx(60.1)


def test_a_due_moment_is_started_once() -> None:
    desired = cron()
    todo = plan(desired, [], at("2026-01-01T00:10:01"))
    assert todo.start == at("2026-01-01T00:10:00")
    desired.status.last_schedule_time = format_time(todo.start)
    assert plan(desired, [], at("2026-01-01T00:10:02")).start is None
    # The status that said so was lost, or has not been seen: the list of active Jobs says it too.
    name = job_name(desired, todo.start)
    desired.status = batch_v1.CronJobStatus(active=[core_v1.ObjectReference(name=name, uid=f"uid-{name}")])
    assert plan(desired, [run(name)], at("2026-01-01T00:10:01")).start is None


def test_of_several_missed_moments_only_the_latest_is_started() -> None:
    assert plan(cron(), [], at("2026-01-01T05:03:00")).start == at("2026-01-01T05:00:00")


def test_a_moment_missed_by_more_than_the_deadline_is_let_go() -> None:
    todo = plan(cron(starting_deadline_seconds=60), [], at("2026-01-01T00:15:00"))
    assert todo.start is None
    assert plan(cron(starting_deadline_seconds=600), [], at("2026-01-01T00:15:00")).start == at("2026-01-01T00:10:00")


def test_a_very_long_outage_is_reported_and_only_the_latest_run_started() -> None:
    todo = plan(cron("* * * * *"), [], at("2026-02-01T00:00:30"))
    assert todo.start == at("2026-02-01T00:00:00") and "TooManyMissedTimes" in reasons(todo)


def test_concurrency_policies() -> None:
    def busy(policy: str | None = None) -> batch_v1.CronJob:
        made = cron(concurrency_policy=policy)
        made.status.active = [core_v1.ObjectReference(name="old", uid="uid-old")]
        return made

    running, now = [run("old"), run("of-another")], at("2026-01-01T00:10:01")
    assert plan(busy(), running, now).start is not None
    forbid = plan(busy("Forbid"), running, now)
    assert forbid.start is None and "JobAlreadyActive" in reasons(forbid)
    replace = plan(busy("Replace"), running, now)
    assert replace.start is not None and [j.metadata.name for j in replace.replace] == ["old"]


def test_a_suspended_cron_job_starts_nothing() -> None:
    assert plan(cron(suspend=True), [], at("2026-01-01T05:00:00")).start is None


def test_finished_jobs_leave_the_active_list_and_the_last_success_is_noted() -> None:
    desired = cron()
    desired.status.active = [
        core_v1.ObjectReference(name="done", uid="uid-done"),
        core_v1.ObjectReference(name="lost", uid="uid-lost"),
        core_v1.ObjectReference(name="busy", uid="uid-busy"),
    ]
    todo = plan(desired, [run("done", "Complete"), run("busy"), run("strange")], at("2026-01-01T00:00:30"))
    assert [ref.name for ref in todo.status.active] == ["busy"]
    assert todo.status.last_successful_time == "2026-01-01T00:10:00Z"
    assert [e[1:] for e in todo.events] == [
        ("SawCompletedJob", "Saw completed job: done, condition: Complete"),
        ("MissingJob", "Active job went missing: lost"),
        ("UnexpectedJob", "Saw a job that the controller did not create or forgot: strange"),
    ]


def test_old_history_goes_oldest_first() -> None:
    done = [run(f"s{n}", "Complete", f"2026-01-01T0{n}:00:00Z") for n in range(5)]
    failed = [run(f"f{n}", "Failed", f"2026-01-01T0{n}:00:00Z") for n in range(3)]
    todo = plan(cron(), done + failed, at("2026-01-01T00:00:30"))
    assert [job.metadata.name for job in todo.old] == ["s0", "s1", "f0", "f1"]


def test_invalid_schedules_and_time_zones_are_reported() -> None:
    assert reasons(plan(cron("bad"), [], at("2026-01-01T00:00:30"))) == ["UnparseableSchedule"]
    assert reasons(plan(cron(time_zone="No/Where"), [], at("2026-01-01T00:00:30"))) == ["UnknownTimeZone"]


def test_the_job_of_a_run_is_named_by_its_minute_and_knows_its_moment() -> None:
    made = job_of(cron(time_zone="Europe/Berlin"), datetime(2026, 1, 1, 0, 10, tzinfo=UTC))
    assert made.metadata.name == "c-29453770" and made.metadata.labels == {"a": "b"}
    assert made.metadata.annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] == "2026-01-01T01:10:00+01:00"
    assert made.spec.parallelism == 2 and made.metadata.owner_references[0].kind == "CronJob"
