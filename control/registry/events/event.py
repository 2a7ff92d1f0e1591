"""Events, in both their forms: core/v1 (involvedObject, source) and events.k8s.io/v1 (regarding, reportingController).

Either form may be stored; reading looks at both names of a field. Events are checked in the stored form, core/v1, and errors
name its fields, as upstream: reporter fields of events with an eventTime, and no deprecated fields through events.k8s.io.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.changes import IMMUTABLE
from control.registry.checks import Errors, FieldErrors, each
from control.registry.strategy import Strategy
from control.registry.table_cells import Column, name_of
from control.registry.tables import UNKNOWN, age
from kube import names
from kube.errors import FieldError, invalid_value, required
from kube.json_object import Object
from kube.resources import Resource

_MISMATCH = "does not match event.namespace"
_LONGEST, _LONGEST_MESSAGE = 128, 1024
_UNSET = ("firstTimestamp", "lastTimestamp", "count")
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    *_UNSET,
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)


def validate_event(event: Object) -> FieldErrors:
    """Check an event of either form."""
    namespace = (event.get("metadata") or {}).get("namespace") or ""
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    if not event.get("eventTime"):
        if namespace != about if about else namespace not in ("", "default"):
            yield invalid_value("involvedObject.namespace", about, _MISMATCH)
        return
    if not about and namespace not in ("default", "kube-system"):
        yield invalid_value("involvedObject.namespace", about, _MISMATCH)
    reporter = event.get("reportingComponent") or ""
    if not reporter:
        yield required("reportingComponent")
    yield from each("reportingComponent", reporter, names.qualified_name(reporter))
    for key in ("reportingInstance", "action", "reason"):
        value = event.get(key) or ""
        if not value:
            yield required(key)
        if len(value) > _LONGEST:
            yield invalid_value(key, "", f"can have at most {_LONGEST} characters")
    if len(event.get("message") or "") > _LONGEST_MESSAGE:
        yield invalid_value("message", "", f"can have at most {_LONGEST_MESSAGE} characters")


def validate_new_event(event: Object, old: Object | None) -> Errors:
    """Check an event that was made (`old` None) or changed through events.k8s.io/v1."""
    errors: Errors = []
    if old is None or event.get("series") != old.get("series"):
        errors += _series(event.get("series"))
    if old is not None:
        changed = [key for key in _FIXED if (event.get(key) or None) != (old.get(key) or None)]
        return errors + [invalid_value(key, event.get(key), IMMUTABLE) for key in changed]
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        errors.append(invalid_value("type", "", f"has invalid value: {event.get('type') or ''}"))
    source = event.get("source") or {}
    unset = [key for key in _UNSET if event.get(key)] + (["source"] if any(source.values()) else [])
    return errors + [invalid_value(key, "", "needs to be unset") for key in unset]


def _series(series: Object | None) -> FieldErrors:
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield invalid_value("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


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
