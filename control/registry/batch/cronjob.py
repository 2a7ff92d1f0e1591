"""CronJobs: defaults and checks."""

from __future__ import annotations

import functools
import zoneinfo
from datetime import datetime

from msgspec.structs import replace

from control.registry.batch.job_validation import validate_job_spec
from control.registry.batch.schedule import LONGEST, schedule_problem
from control.registry.checks import each, non_negative_fields, one_of
from control.registry.core.pod.defaults import default_template
from control.registry.core.pod.warnings import pod_name_warnings, template_warnings
from control.registry.defaults import Defaults, absent
from control.registry.strategy import Strategy
from control.registry.table_cells import (
    AGE,
    NAME,
    NONE,
    SELECTOR,
    UNSET,
    Column,
    Field,
    containers_and_images,
    count,
    number,
    selector_text,
)
from control.registry.tables import age
from kube.errors import FieldError, invalid_value, not_supported, required
from kube.json_object import Object


@functools.cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _last_schedule(job: Object, now: datetime) -> str:
    last = (job.get("status") or {}).get("lastScheduleTime")
    return age(last, now) if last else NONE


_BOTH = "cannot use both timeZone field and TZ or CRON_TZ in schedule"


def _zone_problems(zone: str) -> list[str]:
    """Return what is wrong with the name of a time zone; the server's own has none that clients know."""
    if not zone:
        return ["timeZone must be nil or non-empty string"]
    problems = []
    if zone.lower() == "local":
        problems.append("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
    if zone != "Local" and zone not in _zones():
        problems.append(f"unknown time zone {zone}")
    return problems


class CronJobStrategy(Strategy):
    columns = (
        NAME,
        Column("Schedule", Field("spec.schedule"), "When, in Cron's notation."),
        Column("Timezone", Field("spec.timeZone", NONE), "Time zone of the schedule."),
        Column("Suspend", number("spec.suspend", UNSET), "Whether it rests.", type="boolean"),
        Column("Active", count("status.active"), "Jobs that run now.", type="integer"),
        Column("Last Schedule", _last_schedule, "When a job was last made."),
        AGE,
        *containers_and_images("spec.jobTemplate.spec.template.spec.containers"),
        replace(SELECTOR, cell=Field("spec.jobTemplate.spec.selector", show=selector_text)),
    )
    field_defaults = Defaults(
        ("spec.concurrencyPolicy", "Allow"),
        ("spec.suspend", absent(False)),
        ("spec.successfulJobsHistoryLimit", absent(3)),
        ("spec.failedJobsHistoryLimit", absent(1)),
    )

    def default(self, obj: Object) -> None:
        default_template(obj.setdefault("spec", {}).setdefault("jobTemplate", {}).setdefault("spec", {}))
        super().default(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}

    def validate(self, obj: Object) -> list[FieldError]:
        return self._validate(obj, zoned=False)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self._validate(obj, zoned="TZ" in ((old.get("spec") or {}).get("schedule") or ""))

    def _validate(self, obj: Object, *, zoned: bool) -> list[FieldError]:
        """Check a CronJob; with `zoned` its schedule may name a time zone, as the stored one does."""
        spec = obj.get("spec") or {}
        template = (spec.get("jobTemplate") or {}).get("spec") or {}
        errors = list(validate_job_spec(template, "spec.jobTemplate.spec", needs_selector=False))
        if template.get("selector") is not None:
            detail = "`selector` will be auto-generated"
            errors.append(invalid_value("spec.jobTemplate.spec.selector", template["selector"], detail))
        if template.get("manualSelector"):
            errors.append(not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
        schedule = spec.get("schedule") or ""
        if not schedule:
            errors.append(required("spec.schedule"))
        else:
            problem = schedule_problem(schedule)
            errors += [invalid_value("spec.schedule", schedule[:LONGEST], problem)] if problem else []
        if "TZ" in schedule and not (zoned and spec.get("timeZone") is None):
            detail = _BOTH if zoned else "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.append(invalid_value("spec.schedule", schedule[:LONGEST], detail))
        keys = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
        errors += non_negative_fields(spec, "spec", *keys)
        errors += one_of(spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy")
        zone = spec.get("timeZone")
        return errors + ([] if zone is None else each("spec.timeZone", zone, _zone_problems(zone)))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return ([] if old else pod_name_warnings(obj)) + template_warnings(obj, old, "spec.jobTemplate.spec.template")

    def name_errors(self, name: str, *, prefix: bool = False) -> list[str]:
        """Jobs get eleven characters more than their CronJob, and names of pods come from those."""
        problems = super().name_errors(name, prefix=prefix)
        return [*problems, "must be no more than 52 characters"] if len(name) > 52 else problems
