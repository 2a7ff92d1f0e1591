"""Events, in both their forms: core/v1 (involvedObject, source) and events.k8s.io/v1 (regarding, reportingController).

Either form may be stored; reading looks at both names of a field.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.events.validation import validate_event, validate_new_event
from control.registry.strategy import Strategy
from control.registry.table_cells import Column, name_of
from control.registry.tables import UNKNOWN, age
from kube.errors import FieldError
from kube.json_object import Object
from kube.resources import Resource


class EventStrategy(Strategy):
    columns = (
        Column("Last Seen", description="Time since it was last seen."),
        Column("Type", description="Normal or Warning."),
        Column("Reason", description="Why, in a word."),
        Column("Object", description="What it is about."),
        Column("Subobject", description="Which part of the object.", priority=1),
        Column("Source", description="Who reports it.", priority=1),
        Column("Message", description="Why, in a sentence."),
        Column("First Seen", description="Time since it was first seen.", priority=1),
        Column("Count", description="How often it was seen.", priority=1),
        Column("Name", format="name", description="Name of the event.", priority=1),
    )
    allow_create_on_update = True
    has_generation = False
    has_dependents = False

    @property
    def ttl(self) -> int:
        return self.settings.event_ttl

    def fields(self, obj: Object) -> dict[str, str]:
        about = _about(obj)
        found = {f"involvedObject.{key}": about.get(key) or "" for key in _REFERENCE}
        found |= {f"regarding.{key}": value.get(key) or "" for value in (about,) for key in _REFERENCE}
        source = _source(obj).get("component") or _reporter(obj)
        found |= {
            "reason": obj.get("reason") or "",
            "reportingComponent": _reporter(obj),
            "reportingController": _reporter(obj),
            "source": source,
            "type": obj.get("type") or "",
        }
        return found

    def validate(self, obj: Object) -> list[FieldError]:
        return list(validate_event(obj))

    def validate_requested(self, obj: Object, old: Object | None, requested: Resource) -> list[FieldError]:
        return validate_new_event(obj, old) if requested.group == "events.k8s.io" else []

    def row(self, obj: Object, now: datetime) -> list[Any]:
        about, series = _about(obj), obj.get("series")
        first = _first_of(obj, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
        last = _first_of(obj, "lastTimestamp", "deprecatedLastTimestamp") or first
        count = obj.get("count") or obj.get("deprecatedCount") or 1
        if series:
            last, count = series.get("lastObservedTime"), series.get("count", 0)
        kind, name = (about.get("kind") or "").lower(), about.get("name")
        return [
            age(last, now) if last else UNKNOWN,
            obj.get("type") or "",
            obj.get("reason") or "",
            f"{kind}/{name}" if name else kind,
            about.get("fieldPath") or "",
            _source_text(obj),
            (obj.get("message") or obj.get("note") or "").strip(),
            age(first, now),
            count,
            name_of(obj),
        ]


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _about(event: Object) -> Object:
    found: Object = event.get("involvedObject") or event.get("regarding") or {}
    return found


def _source(event: Object) -> Object:
    found: Object = event.get("source") or event.get("deprecatedSource") or {}
    return found


def _reporter(event: Object) -> str:
    return event.get("reportingComponent") or event.get("reportingController") or ""


def _source_text(event: Object) -> str:
    source = _source(event)
    component = source.get("component") or _reporter(event)
    instance = source.get("host") or event.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


def _first_of(event: Object, *names: str) -> str | None:
    return next((event[n] for n in names if event.get(n)), None)
