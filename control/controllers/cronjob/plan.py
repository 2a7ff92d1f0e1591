"""Plans the next step of a CronJob: the run that is due, old Jobs to delete, and the time of the next check. Pure.

Upstream: pkg/controller/cronjob/{cronjob_controllerv2,utils}.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import format_datetime
from itertools import takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from control.controllers.ownership import controller_reference
from kube.api import batch_v1, core_v1, meta_v1
from kube.clock import after, parse_time
from kube.cron import Schedule, parse
from kube.object_names import name_of, namespace_of

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY_MISSED = 100
"""Missed runs are counted up to here; more give a warning. However many there are, only the latest one is started."""

Event = tuple[str, str, str]
"""(type, reason, message)."""


@dataclass(slots=True)
class CronPlan:
    status: batch_v1.CronJobStatus
    start: datetime | None = None
    """Start the run of this moment."""
    replace: list[batch_v1.Job] = field(default_factory=list)
    """Running Jobs that the new run takes the place of."""
    old: list[batch_v1.Job] = field(default_factory=list)
    """Finished Jobs beyond the history limits."""
    events: list[Event] = field(default_factory=list)
    again: float | None = None


def outcome(job: batch_v1.Job) -> str:
    """Return Complete or Failed for a finished Job, "" for a running one."""
    for condition in job.status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            return condition.type
    return ""


def zone_of(cron: batch_v1.CronJob) -> tzinfo:
    """Return the time zone of a schedule (UTC where it names none); ValueError for an unknown one."""
    if not cron.spec.time_zone:
        return UTC
    try:
        return ZoneInfo(cron.spec.time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        zone = cron.spec.time_zone
        raise ValueError(f'invalid timeZone: "{zone}": unknown time zone {zone}') from error


def plan(cron: batch_v1.CronJob, jobs: Sequence[batch_v1.Job], now: datetime) -> CronPlan:
    """Compare a CronJob with its Jobs and the time."""
    events: list[Event] = []
    result = CronPlan(_follow(cron, jobs, events), events=events)
    result.old = _history(cron, jobs)
    if cron.metadata.deletion_timestamp is not None:
        return result
    try:
        zone = zone_of(cron)
    except ValueError as error:
        result.events.append(("Warning", "UnknownTimeZone", str(error)))
        return result
    if cron.spec.suspend:
        return result
    try:
        schedule = parse(cron.spec.schedule)
    except ValueError as error:
        text = f'unparseable schedule: "{cron.spec.schedule}" : {error}'
        result.events.append(("Warning", "UnparseableSchedule", text))
        return result
    scheduled_time, missed = _most_recent(cron, schedule, zone, now)
    upcoming = schedule.after(now, zone)
    if upcoming is None:  # the 30th of February, or no such day for years
        text = f"invalid schedule: {cron.spec.schedule} : time difference between two schedules is less than 1 second"
        result.events.append(("Warning", "InvalidSchedule", text))
        return result
    result.again = (upcoming - now).total_seconds() + 0.1
    if scheduled_time is None:
        return result
    if missed > MANY_MISSED:
        text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        result.events.append(("Warning", "TooManyMissedTimes", text))
    deadline = cron.spec.starting_deadline_seconds
    if deadline is not None and after(scheduled_time, deadline) < now:
        text = f"Missed scheduled time to start a job: {format_datetime(scheduled_time)}"
        result.events.append(("Warning", "MissSchedule", text))
        return result
    if result.status.last_schedule_time and parse_time(result.status.last_schedule_time) >= scheduled_time:
        return result
    name = job_name(cron, scheduled_time)
    if any(reference.name == name for reference in result.status.active):
        return result
    # Jobs that somebody else made (`kubectl create job --from`) are not in the list and hinder nothing.
    active = {reference.uid for reference in result.status.active}
    running = [job for job in jobs if job.metadata.uid in active]
    if cron.spec.concurrency_policy == "Forbid" and running:
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        result.events.append(("Normal", "JobAlreadyActive", text))
        return result
    if cron.spec.concurrency_policy == "Replace":
        result.replace = running
    result.start = scheduled_time
    return result


def _most_recent(
    cron: batch_v1.CronJob, schedule: Schedule, zone: tzinfo, now: datetime
) -> tuple[datetime | None, int]:
    """Return the latest moment that is due and not yet started, and how many there were."""
    last = cron.status.last_schedule_time or cron.metadata.creation_timestamp
    earliest = parse_time(last) if last else now
    if cron.spec.starting_deadline_seconds is not None:
        earliest = max(earliest, after(now, -cron.spec.starting_deadline_seconds))
    if schedule.every:
        missed = max(0, int((now - earliest.replace(microsecond=0)).total_seconds() // schedule.every))
        return (after(earliest, missed * schedule.every) if missed else None), missed
    scheduled_time: datetime | None = None
    missed = 0
    for moment in schedule.upcoming(earliest, zone):
        if moment > now:
            break
        scheduled_time, missed = moment, missed + 1
        if missed > MANY_MISSED:
            return _latest(schedule, zone, scheduled_time, now), missed
    return scheduled_time, missed


def _latest(schedule: Schedule, zone: tzinfo, known: datetime, now: datetime) -> datetime:
    """Return the last moment up to now without a walk through all of them since a known one, years ago perhaps."""
    for days in (1, 32, 366):
        since = max(known, now - timedelta(days=days))
        found = list(takewhile(lambda moment: moment <= now, schedule.upcoming(since, zone)))
        if found:
            return found[-1]
    return known


def _follow(cron: batch_v1.CronJob, jobs: Sequence[batch_v1.Job], events: list[Event]) -> batch_v1.CronJobStatus:
    """Return the status with the list of active Jobs, and the time of the last success, brought up to date."""
    by_uid = {job.metadata.uid: job for job in jobs}
    active: list[core_v1.ObjectReference] = []
    success = cron.status.last_successful_time
    for reference in cron.status.active:
        job = by_uid.get(reference.uid)
        if job is None:
            events.append(("Normal", "MissingJob", f"Active job went missing: {reference.name}"))
        elif end := outcome(job):
            events.append(("Normal", "SawCompletedJob", f"Saw completed job: {name_of(job)}, condition: {end}"))
        else:
            active.append(reference)
    known = {reference.uid for reference in cron.status.active}
    for job in jobs:
        if not outcome(job) and job.metadata.uid not in known:
            text = f"Saw a job that the controller did not create or forgot: {name_of(job)}"
            events.append(("Warning", "UnexpectedJob", text))
        if outcome(job) == "Complete" and job.status.completion_time:
            success = max(success or "", job.status.completion_time)
    return batch_v1.CronJobStatus(
        active=active, last_schedule_time=cron.status.last_schedule_time, last_successful_time=success
    )


def _history(cron: batch_v1.CronJob, jobs: Sequence[batch_v1.Job]) -> list[batch_v1.Job]:
    """Return the finished Jobs beyond the limits, oldest first."""
    surplus: list[batch_v1.Job] = []
    for end, limit, default in (
        ("Complete", cron.spec.successful_jobs_history_limit, 3),
        ("Failed", cron.spec.failed_jobs_history_limit, 1),
    ):
        done = [job for job in jobs if outcome(job) == end and job.metadata.deletion_timestamp is None]
        done.sort(key=lambda job: (job.status.start_time or job.metadata.creation_timestamp or "", name_of(job)))
        surplus += done[: max(0, len(done) - (default if limit is None else limit))]
    return surplus


def job_name(cron: batch_v1.CronJob, scheduled_time: datetime) -> str:
    """Return the name of the Job of one run: it is the same for the same moment, so a run is started once."""
    return f"{name_of(cron)}-{int(scheduled_time.timestamp()) // 60}"


def job_of(cron: batch_v1.CronJob, scheduled_time: datetime) -> batch_v1.Job:
    """Make the Job of one run."""
    template = cron.spec.job_template or batch_v1.JobTemplateSpec()
    scheduled = scheduled_time.astimezone(zone_of(cron)).isoformat().replace("+00:00", "Z")
    return batch_v1.Job(
        metadata=meta_v1.ObjectMeta(
            name=job_name(cron, scheduled_time),
            namespace=namespace_of(cron),
            labels=dict(template.metadata.labels) if template.metadata else {},
            annotations={**(template.metadata.annotations if template.metadata else {}), SCHEDULED: scheduled},
            creation_timestamp=None,
            owner_references=[controller_reference(cron)],
        ),
        spec=template.spec or batch_v1.JobSpec(),
    )
