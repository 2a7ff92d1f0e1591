"""Checks of the policies of a Job: pod failure policy, success policy and pod replacement policy.

Upstream: validatePodFailurePolicy and validateSuccessPolicy in pkg/apis/batch/validation.
"""

from __future__ import annotations

import re

from control.registry.checks import Errors, FieldErrors, non_negative, unique
from control.registry.rows import Rows
from control.registry.rules import Test, form, max_items, require_enum
from kube import names
from kube.errors import OMITTED, invalid_value, not_supported, required, too_long, too_many
from kube.json_object import Object

_MAX_RULES, _MAX_PATTERNS, _MAX_CODES, _MAX_INDEXES = 20, 20, 255, 64 * 1024
_INDEXES = re.compile("[0-9]+(-[0-9]+)?")


def _one_of(*allowed: str) -> Test:
    shown = " ".join(f'"{value}"' for value in allowed)
    return require_enum(*allowed, detail=f"valid values: [{shown}]")


_ACTION = Rows(("action", _one_of("Count", "FailIndex", "FailJob", "Ignore")))
_OPERATOR = Rows(("operator", _one_of("In", "NotIn")))
_PATTERNS = Rows(
    ("onPodConditions", max_items(_MAX_PATTERNS)),
    ("onPodConditions[*].type", form(names.qualified_name)),
    ("onPodConditions[*].status", _one_of("False", "True", "Unknown")),
)


def validate_policies(spec: Object, path: str) -> FieldErrors:
    """Check a job spec's podFailurePolicy, successPolicy and podReplacementPolicy."""
    failure, success = spec.get("podFailurePolicy"), spec.get("successPolicy")
    if failure is not None:
        yield from _failure(failure.get("rules") or [], spec, f"{path}.podFailurePolicy.rules")
    if success is not None:
        if spec.get("completionMode") != "Indexed":
            yield invalid_value(f"{path}.successPolicy", success, "requires indexed completion mode")
        else:
            yield from _success(success.get("rules") or [], spec, f"{path}.successPolicy.rules")
    replacement = spec.get("podReplacementPolicy")
    allowed = ("Failed", "TerminatingOrFailed") if failure is None else ("Failed",)
    if replacement is not None and replacement not in allowed:
        yield not_supported(f"{path}.podReplacementPolicy", replacement, allowed)


def _failure(rules: list[Object], spec: Object, path: str) -> Errors:
    errors: Errors = [too_many(path, len(rules), _MAX_RULES)] if len(rules) > _MAX_RULES else []
    pod = (spec.get("template") or {}).get("spec") or {}
    known = {c.get("name") for kind in ("containers", "initContainers") for c in pod.get(kind) or ()}
    for index, rule in enumerate(rules):
        where = f"{path}[{index}]"
        errors += _ACTION(rule, where)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            errors.append(invalid_value(f"{where}.action", "FailIndex", "requires the backoffLimitPerIndex to be set"))
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            errors += _codes(codes, known, f"{where}.onExitCodes")
        errors += _PATTERNS(rule, where)
        if codes is not None and patterns:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(invalid_value(where, OMITTED, detail))
        elif codes is None and not patterns:
            detail = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(invalid_value(where, OMITTED, detail))
    return errors


def _codes(codes: Object, known: set[str | None], path: str) -> FieldErrors:
    values, name = codes.get("values") or [], codes.get("containerName")
    yield from _OPERATOR(codes, path)
    if name is not None and name not in known:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid_value(f"{path}.containerName", name, detail)
    if not values:
        yield invalid_value(f"{path}.values", values, "at least one value is required")
    elif len(values) > _MAX_CODES:
        yield too_many(f"{path}.values", len(values), _MAX_CODES)
    seen: set[int] = set()
    for index, value in enumerate(values):
        if codes.get("operator") == "In" and value == 0:
            yield invalid_value(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        yield from unique(f"{path}.values[{index}]", value, seen)
    if values != sorted(values):
        yield invalid_value(f"{path}.values", values, "must be ordered")


def _success(rules: list[Object], spec: Object, path: str) -> Errors:
    if not rules:
        return [required(path, "at least one rules must be specified when the successPolicy is specified")]
    errors: Errors = [too_many(path, len(rules), _MAX_RULES)] if len(rules) > _MAX_RULES else []
    completions = spec.get("completions") or 0
    for index, rule in enumerate(rules):
        where, count, indexes = f"{path}[{index}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            errors.append(required(where, "at least one of succeededCount or succeededIndexes must be specified"))
            continue
        total = None
        if indexes is not None:
            place = f"{where}.succeededIndexes"
            total, problem = _parse(indexes, completions)
            if len(indexes) > _MAX_INDEXES:
                errors.append(too_long(place, _MAX_INDEXES))
            if problem:
                errors.append(invalid_value(place, indexes, f"error parsing succeededIndexes: {problem}"))
        if count is None:
            continue
        place = f"{where}.succeededCount"
        errors += non_negative(count, place)
        if count > completions:
            detail = f"must be less than or equal to {completions} (the number of specified completions)"
            errors.append(invalid_value(place, count, detail))
        if total is not None and count > total:
            detail = (
                f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            )
            errors.append(invalid_value(place, count, detail))
    return errors


def _parse(text: str, completions: int) -> tuple[int | None, str]:
    """Return how many indexes a text like "0-2,5" names, or what is wrong with it."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        if not _INDEXES.fullmatch(part):
            if part.count("-") > 1:
                rule = "an index interval can have at most two parts separated by '-'"
                return None, f'the fragment "{part}" violates the requirement that {rule}'
            wrong = next(p for p in part.split("-") if not (p.isascii() and p.isdigit()))
            return None, f'cannot convert string to integer for index: "{wrong}"'
        low, _, high = part.partition("-")
        if long := next((p for p in (low, high) if len(p) > 10), ""):
            return None, f'cannot convert string to integer for index: "{long}"'
        first, end = int(low), int(high or low)
        if first >= completions or end >= completions:
            shown = first if first >= completions else end
            return None, f'too large index: "{shown}"'
        if first <= last:
            return None, f"non-increasing order, previous: {last}, current: {first}"
        if high and first >= end:
            return None, f"non-increasing order, previous: {first}, current: {end}"
        total, last = total + end - first + 1, end
    return total, ""
