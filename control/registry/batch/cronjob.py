"""CronJobs: jobs by the clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    SELECTOR,
    UNSET,
    Column,
    containers_and_images,
    created,
    name_of,
    selector_text,
)
from control.registry.core.pod_defaults import default_template
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class CronJobStrategy(Strategy):
    columns = (
        NAME,
        Column("Schedule", description="When, in Cron's notation."),
        Column("Timezone", description="Time zone of the schedule."),
        Column("Suspend", "boolean", description="Whether it rests."),
        Column("Active", "integer", description="Jobs that run now."),
        Column("Last Schedule", description="When a job was last made."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))
        for key, value in (
            ("concurrencyPolicy", "Allow"),
            ("suspend", False),
            ("successfulJobsHistoryLimit", 3),
            ("failedJobsHistoryLimit", 1),
        ):
            if spec.get(key) in (None, ""):
                spec[key] = value

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        names, images = containers_and_images((job.get("template") or {}).get("spec"))
        last, suspend = status.get("lastScheduleTime"), spec.get("suspend")
        return [
            name_of(obj),
            spec.get("schedule") or "",
            spec.get("timeZone") or NONE,
            UNSET if suspend is None else str(suspend),
            len(status.get("active") or ()),
            age(last, now) if last else NONE,
            age(created(obj), now),
            names,
            images,
            selector_text(job.get("selector")),
        ]
