"""Checks of Events: reporter fields of events with an eventTime, and no deprecated fields through events.k8s.io.

Events are checked in the stored form, core/v1, and errors name its fields, as upstream.
"""

from __future__ import annotations

from control.registry.changes import IMMUTABLE
from control.registry.checks import Errors, FieldErrors, each
from kube import names
from kube.errors import invalid_value, required
from kube.json_object import Object

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
