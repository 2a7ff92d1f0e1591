"""Checks of a Job's status, which other controllers than the Job controller may write (managedBy, KEP-4368).

A rule is applied only if a part of the status that it concerns changes: other updates of a status that breaks it stay
possible, and after a change of the spec the controller has time to follow.
Upstream: getStatusValidationOptions in pkg/registry/batch/job, validateJobStatus in pkg/apis/batch/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from control.registry.changes import IMMUTABLE
from control.registry.checks import FieldErrors
from kube.clock import parse_time
from kube.errors import OMITTED, FieldError, invalid_value, required
from kube.json_object import Object

_TERMINAL = ("Failed", "Complete", "FailureTarget")
_NUMBER = re.compile("[+-]?[0-9]{1,18}")
Interval = tuple[int, int]


class IndexesError(ValueError):
    """A text of indexes that is invalid."""


class _Change:
    """A status before and after an update."""

    def __init__(self, obj: Object, old: Object) -> None:
        self.spec: Object = obj.get("spec") or {}
        self.now: Object = obj.get("status") or {}
        self.was: Object = old.get("status") or {}
        self.true, self.once = _conditions(self.now, "True"), _conditions(self.was, "True")
        self.finished = bool(self.true & {"Complete", "Failed"})
        self.ended = self.finished != bool(self.once & {"Complete", "Failed"})
        """True if the job is finished now and was not, or the other way round."""

    def field(self, *names: str) -> bool:
        """Return whether a field changes; absent and empty are the same."""
        return any((self.now.get(name) or None) != (self.was.get(name) or None) for name in names)

    def condition(self, *names: str) -> bool:
        return any((name in self.true) != (name in self.once) for name in names)


def validate_job_status(obj: Object, old: Object) -> FieldErrors:
    """Check the changes of a status: of a finished job, of counters and times, and of indexes."""
    change = _Change(obj, old)
    yield from _contradictions(change)
    yield from _completion(change)
    yield from _finished(change)
    yield from _indexes(change)
    yield from _success(change)
    yield from _transitions(change)


def _wrong(detail: str) -> FieldError:
    return invalid_value("status.conditions", OMITTED, detail)


def _conditions(status: Object, value: str) -> set[str]:
    return {each.get("type") or "" for each in status.get("conditions") or () if each.get("status") == value}


def _contradictions(change: _Change) -> Iterator[FieldError]:
    for other, shown in (("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")):
        if {"Complete", other} <= change.true and change.condition("Complete", other):
            yield _wrong(f"cannot set Complete=True and {shown} conditions")


def _completion(change: _Change) -> Iterator[FieldError]:
    path, time, start = "status.completionTime", change.now.get("completionTime"), change.now.get("startTime")
    if change.condition("Complete") or change.field("completionTime"):
        if time and "Complete" not in change.true:
            yield invalid_value(path, time, "cannot set completionTime when there is no Complete=True condition")
        if not time and "Complete" in change.true:
            yield required(path, "completionTime is required for Complete jobs")
    if time and start and change.field("startTime", "completionTime") and parse_time(time) < parse_time(start):
        yield invalid_value(path, time, "must be equal to or after `startTime`")
    if "Failed" in change.true and "FailureTarget" not in change.true:
        if change.condition("Failed") or change.field("failedIndexes"):
            yield _wrong("cannot set Failed=True condition without the FailureTarget=true condition")
    if "Complete" in change.true and "SuccessCriteriaMet" not in change.true:
        if change.condition("Complete", "SuccessCriteriaMet"):
            yield _wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")


def _finished(change: _Change) -> Iterator[FieldError]:
    now, active = change.now, change.now.get("active") or 0
    if change.finished and active > 0 and (change.ended or change.field("active")):
        yield invalid_value("status.active", active, "active>0 is invalid for finished job")
    nothing_to_do = change.spec.get("suspend") is True and change.spec.get("completions") == 0
    if (
        change.finished
        and not now.get("startTime")
        and (change.ended or change.field("startTime"))
        and not nothing_to_do
    ):
        yield required("status.startTime", "startTime is required for finished job")
    uncounted = now.get("uncountedTerminatedPods") or {}
    if change.finished and (uncounted.get("succeeded") or uncounted.get("failed")):
        if change.ended or change.field("uncountedTerminatedPods"):
            shown = {"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")}
            yield invalid_value("status.uncountedTerminatedPods", shown, "must be empty for finished job")
    if change.finished and (now.get("terminating") or 0) > 0 and (change.ended or change.field("terminating")):
        yield invalid_value("status.terminating", now["terminating"], "terminating>0 is invalid for finished job")
    ready = now.get("ready")
    if ready is not None and ready > active and change.field("ready", "active"):
        yield invalid_value("status.ready", ready, "cannot set more ready pods than active")


def _indexes(change: _Change) -> Iterator[FieldError]:
    spec, completed, failed = change.spec, change.now.get("completedIndexes") or "", change.now.get("failedIndexes")
    most, per_index = spec.get("completions"), spec.get("backoffLimitPerIndex") is not None
    if change.field("completedIndexes"):
        if most is not None:
            yield from _format("completedIndexes", completed, most)
        if completed and spec.get("completionMode") != "Indexed":
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            yield invalid_value("status.completedIndexes", completed, detail)
    changed = failed != change.was.get("failedIndexes")
    if failed is None or not (changed or change.field("completedIndexes")):
        return
    if changed and per_index and most is not None:
        yield from _format("failedIndexes", failed, most)
    if changed and not per_index:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid_value("status.failedIndexes", failed, detail)
    if most is not None and (shared := _overlap(completed, failed, most)):
        yield invalid_value("status.failedIndexes", failed, shared)


def _format(field: str, text: str, most: int) -> Iterator[FieldError]:
    try:
        list(intervals(text, most))
    except IndexesError as error:
        yield invalid_value(f"status.{field}", text, f"error parsing {field}: {error}")


def intervals(text: str, most: int) -> Iterator[Interval]:
    """Yield the intervals of a text such as `1,3-5`, whose indexes are below `most`; raises IndexesError."""
    last: int | None = None
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2:
            raise IndexesError(
                f'the fragment "{part}" violates the requirement that an index interval can have at most two parts '
                "separated by '-'"
            )
        first = _index(limits[0], most)
        end = _index(limits[1], most) if len(limits) > 1 else first
        if len(limits) > 1 and first >= end:
            raise IndexesError(f"non-increasing order, previous: {first}, current: {end}")
        if last is not None and last >= first:
            raise IndexesError(f"non-increasing order, previous: {last}, current: {first}")
        last = end
        yield first, end


def _index(text: str, most: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise IndexesError(f'cannot convert string to integer for index: "{text}"')
    if int(text) >= most:
        raise IndexesError(f'too large index: "{text}"')
    return int(text)


def _overlap(completed: str, failed: str, most: int) -> str:
    """Return the problem if an index is completed and failed, or ""; intervals that cannot be read are left out."""
    done, lost = (list(_readable(text, most)) for text in (completed, failed))
    first = second = 0
    while first < len(done) and second < len(lost):
        one, other = done[first], lost[second]
        if one[0] <= other[1] and other[0] <= one[1]:
            return f"failedIndexes and completedIndexes overlap at index: {max(one[0], other[0])}"
        if one[0] <= other[0]:
            first += 1
        else:
            second += 1
    return ""


def _readable(text: str, most: int) -> Iterator[Interval]:
    for part in text.split(",") if text else ():
        try:
            yield from intervals(part, most)
        except IndexesError:
            continue


def _success(change: _Change) -> Iterator[FieldError]:
    if "SuccessCriteriaMet" not in change.true:
        if change.spec.get("successPolicy") is not None and "Complete" in change.true:
            yield _wrong("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
        return
    for other, shown in (("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")):
        if other in change.true:
            yield _wrong(f"cannot set SuccessCriteriaMet=True and {shown} conditions")


def _transitions(change: _Change) -> Iterator[FieldError]:
    """Check what may not change of a status: terminal conditions, counters and times."""
    now, was, spec = change.now, change.was, change.spec
    for name in _TERMINAL:
        if name in change.once - change.true:
            yield _wrong(f"cannot disable the terminal {name}=True condition")
    if (now.get("failed") or 0) < (was.get("failed") or 0):
        yield invalid_value("status.failed", now.get("failed") or 0, "cannot decrease the failed counter")
    # An indexed job is scaled down by its completions and its parallelism together.
    scaled = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if (now.get("succeeded") or 0) < (was.get("succeeded") or 0) and not scaled:
        yield invalid_value("status.succeeded", now.get("succeeded") or 0, "cannot decrease the succeeded counter")
    if now.get("completionTime") and was.get("completionTime") and change.field("completionTime"):
        yield invalid_value("status.completionTime", now["completionTime"], IMMUTABLE)
    resuming = "Suspended" in change.once and "Suspended" in _conditions(now, "False")
    if was.get("startTime") and change.field("startTime") and not spec.get("suspend") and not resuming:
        yield invalid_value("status.startTime", now.get("startTime"), "field is immutable for unsuspended job once set")
    if "SuccessCriteriaMet" in change.once - change.true:
        yield _wrong("cannot disable the SuccessCriteriaMet=True condition")
    if "Complete" in change.once and "SuccessCriteriaMet" in change.true - change.once:
        yield _wrong("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
