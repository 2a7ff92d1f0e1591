"""Validates the CEL rules of a schema: they compile, have a meaning, and their cost is limited.

A rule's cost is estimated for the largest values that the schema allows, times how often its place can occur in one object. The
limits and messages are those of apiextensions-apiserver's API validation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from control.cel import CompileError, Program
from control.cel import compile as compile_cel
from control.cel.estimate import REQUEST_SIZE, least
from control.cel.types import Type
from control.schemas.celtypes import type_of
from control.schemas.rules import declarations, normalized_path
from control.schemas.schema import Schema
from kube import errors
from kube.errors import FieldError
from kube.json_object import Object

RULE_LIMIT = 10_000_000
"""StaticEstimatedCostLimit."""
TOTAL_LIMIT = 100_000_000
"""StaticEstimatedCRDCostLimit."""
_MOST = 1 << 63
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


@dataclass(slots=True)
class _Check:
    found: list[FieldError] = field(default_factory=list)
    costs: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Where:
    """A place in a schema: how often it occurs at most (None: nothing limits it), and whether old values can be found there."""

    path: str
    times: int | None = 1
    lost_at: str = ""


def check(source: Object, path: str) -> list[FieldError]:
    """Return everything wrong with the rules of a structural schema; `path` is that of its root."""
    run = _Check()
    _visit(run, Schema(source), _Where(path), root=True)
    total = min(sum(cost for _, cost in run.costs), _MOST)
    if total > TOTAL_LIMIT and not run.found:
        most = sorted(run.costs, key=lambda item: -item[1])[:4]
        why = "contributed to estimated rule & messageExpression cost total exceeding cost limit for entire OpenAPIv3 schema"
        run.found += [errors.forbidden_field(where, why) for where, cost in most if cost > TOTAL_LIMIT // 100]
        name = "x-kubernetes-validations estimated rule & messageExpression cost total for entire OpenAPIv3 schema"
        run.found.append(errors.forbidden_field(path, _exceeded(name, total, TOTAL_LIMIT)))
    return run.found


def _visit(run: _Check, schema: Schema, where: _Where, *, root: bool = False) -> None:
    type_ = type_of(schema, root=root)
    for index, rule in enumerate(schema.rules):
        _rule(run, rule, schema, type_, where, f"{where.path}.x-kubernetes-validations[{index}]")
    atomic = schema.map_type == "atomic"
    for name, part in schema.properties.items():
        below = f"{where.path}.properties[{name}]"
        _visit(run, part, _Where(below, where.times, where.lost_at or (where.path if atomic else "")))
    if schema.items is not None:
        lost = where.lost_at or ("" if schema.list_type == "map" else where.path)
        times = _times(where.times, schema.limits.get("maxItems"))
        _visit(run, schema.items, _Where(f"{where.path}.items", times, lost))
    if schema.additional is not None and schema.source.get("additionalProperties") is not True:
        times = _times(where.times, schema.limits.get("maxProperties"))
        lost = where.lost_at or (where.path if atomic else "")
        _visit(run, schema.additional, _Where(f"{where.path}.additionalProperties", times, lost))


def _times(outer: int | None, inner: int | None) -> int | None:
    return None if outer is None or inner is None else outer * inner


def _rule(run: _Check, rule: Object, schema: Schema, type_: Type | None, where: _Where, path: str) -> None:
    text = rule.get("rule") or ""
    if not text.strip():
        run.found.append(errors.required(f"{path}.rule", "rule is not specified"))
    _texts(run, rule, schema, path)
    if type_ is None or not text.strip():
        if type_ is None:
            why = "rules can only be set where the schema says of what type values are"
            run.found.append(errors.invalid_value(f"{path}.rule", text, why))
        return
    declared = declarations(type_, rule)
    try:
        program = compile_cel(text, declared)
    except CompileError as error:
        run.found.append(errors.invalid_value(f"{path}.rule", _shown(rule), f"compilation failed: {error}"))
        return
    if program.result.kind not in ("bool", "dyn"):
        run.found.append(errors.invalid_value(f"{path}.rule", text, "cel expression must evaluate to a bool"))
    uses_old = "oldSelf" in program.used
    if uses_old and where.lost_at and not rule.get("optionalOldSelf"):
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {where.lost_at}"
        run.found.append(errors.invalid_value(f"{path}.rule", text, why))
    if rule.get("optionalOldSelf") is not None and not uses_old:
        why = "may not be set if oldSelf is not used in rule"
        run.found.append(errors.invalid_value(f"{path}.optionalOldSelf", rule["optionalOldSelf"], why))
    _cost(run, program, type_, where, f"{path}.rule", "estimated rule cost")
    message = rule.get("messageExpression")
    if message is not None:
        _message(run, message, declared, type_, where, path)


def _shown(rule: Object) -> Object:
    """Return a rule as upstream shows it in errors of its compilation."""
    texts = {key: rule.get(key[0].lower() + key[1:]) or "" for key in ("Rule", "Message", "MessageExpression")}
    more = {"Reason": rule.get("reason"), "FieldPath": rule.get("fieldPath") or ""}
    return {**texts, **more, "OptionalOldSelf": rule.get("optionalOldSelf")}


def _message(run: _Check, text: str, declared: Any, type_: Type, where: _Where, path: str) -> None:
    place = f"{path}.messageExpression"
    if not text.strip():
        run.found.append(errors.required(place, "messageExpression must be non-empty if specified"))
        return
    try:
        program = compile_cel(text, declared)
    except CompileError as error:
        why = f"messageExpression compilation failed: {error}"
        run.found.append(errors.invalid_value(place, text, why))
        return
    if program.result.kind not in ("string", "dyn"):
        run.found.append(errors.invalid_value(place, text, "messageExpression must evaluate to a string"))
    _cost(run, program, type_, where, place, "estimated messageExpression cost")


def _texts(run: _Check, rule: Object, schema: Schema, path: str) -> None:
    message = rule.get("message")
    if message is not None:
        if not message.strip():
            why = "message must be non-empty if specified"
            run.found.append(errors.invalid_value(f"{path}.message", message, why))
        elif "\n" in message.strip():
            run.found.append(errors.invalid_value(f"{path}.message", message, "message must not contain line breaks"))
        elif len(message) > 2048:
            run.found.append(FieldError(f"{path}.message", "Too long", "may not be more than 2048 bytes", message))
    if "\n" in (rule.get("rule") or "").strip() and not message and not rule.get("messageExpression"):
        why = "message must be specified if rule contains line breaks"
        run.found.append(errors.required(f"{path}.message", why))
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        run.found.append(errors.not_supported(f"{path}.reason", reason, _REASONS))
    field_path = rule.get("fieldPath")
    if field_path is not None:
        if not field_path.strip():
            run.found.append(errors.invalid_value(f"{path}.fieldPath", field_path, "must be non-empty if specified"))
        if _bad_path(field_path, schema):
            run.found.append(errors.invalid_value(f"{path}.fieldPath", field_path, "must be a valid path"))


def _bad_path(path: str, schema: Schema) -> str:
    if not path.startswith((".", "['")):
        return f"expected [ or . but got: {path}"
    place: Schema | None = schema
    for name in normalized_path(path).split(".") if "['" not in path else [normalized_path(path)]:
        if place is None:
            break
        place = place.properties.get(name) or (place.additional if not place.properties else None)
    return "" if place is not None else "does not refer to a valid field"


def _cost(run: _Check, program: Program, type_: Type, where: _Where, path: str, name: str) -> None:
    times = where.times if where.times is not None else max(1, REQUEST_SIZE // (least(type_) + 1))
    cost = min(program.estimated_cost * times, _MOST)
    run.costs.append((path, cost))
    if cost > RULE_LIMIT:
        run.found.append(errors.forbidden_field(path, _exceeded(name, cost, RULE_LIMIT)))


def _exceeded(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} {_HINT}"
