"""Policies for requests of a part of a device's capacity (KEP-5075): values that a request may have, or a range of them."""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, at_most, unique
from kube.errors import forbidden_field, invalid_value, required
from kube.json_object import Object
from kube.quantity import Quantity, canonical, parse, plus, remainder, total

MAX_OPTIONS = 10


def validate_capacity(capacity: Object, *, shared: bool, path: str) -> Errors:
    """Check a capacity of a device; `shared` if several claims may have parts of it."""
    policy, where = capacity.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return []
    if not shared:
        return [forbidden_field(where, "allowMultipleAllocations must be true")]
    values, limits = policy.get("validValues") or [], policy.get("validRange")
    if values and limits is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_field(where, detail)]
    field = "validValues" if values else "validRange" if limits is not None else ""
    if not field:
        return []
    if policy.get("default") is None:
        return [required(f"{where}.default", f"required when {field} is defined")]
    most = capacity.get("value", 0)
    if values:
        return list(_validate_values(policy["default"], most, values, f"{where}.validValues"))
    return _validate_range(policy["default"], most, limits, f"{where}.validRange")


def _validate_values(default: Quantity, most: Quantity, values: list[Quantity], path: str) -> FieldErrors:
    yield from [
        invalid_value(f"{path}[{index}]", canonical(value), "values must be sorted in ascending order")
        for index, value in enumerate(values)
        if index and parse(values[index - 1]) > parse(value)
    ]
    seen: set[str] = set()

    def option(value: Quantity, place: str) -> Errors:
        detail = f"option is larger than capacity value: {canonical(most)}"
        return [invalid_value(place, canonical(value), detail)] if parse(value) > parse(most) else []

    yield from at_most(MAX_OPTIONS, values, path, option)
    if len(values) <= MAX_OPTIONS:
        for index, value in enumerate(values):
            yield from unique(f"{path}[{index}]", canonical(value), seen)
    if len(values) > MAX_OPTIONS or parse(default) not in map(parse, values):
        yield invalid_value(path, canonical(default), "default value is not valid according to the requestPolicy")


def _validate_range(default: Quantity, most: Quantity, limits: Object, path: str) -> Errors:
    low, high, step = (limits.get(key) for key in ("min", "max", "step"))
    if low is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    rules = [
        ("min", low, most, parse(low) > parse(most), "min is larger than capacity value"),
        ("min", default, low, parse(default) < parse(low), "default is less than min"),
    ]
    if high is not None:
        rules += [
            ("max", low, high, parse(low) > parse(high), "min is larger than max"),
            ("max", high, most, parse(high) > parse(most), "max is larger than capacity value"),
            ("max", default, high, parse(default) > parse(high), "default is more than max"),
        ]
    errors = [
        invalid_value(f"{path}.{field}", canonical(value), f"{detail}: {canonical(other)}")
        for field, value, other, wrong, detail in rules
        if wrong
    ]
    return errors + (_validate_step(default, most, limits, f"{path}.step") if step is not None else [])


def _validate_step(default: Quantity, most: Quantity, limits: Object, path: str) -> Errors:
    low, high, step = limits["min"], limits.get("max"), limits["step"]
    errors: Errors = []
    if parse(one_step := total([low, step])) > parse(most):
        detail = f"one step {canonical(one_step)} is larger than capacity value: {canonical(most)}"
        errors.append(invalid_value(path, canonical(step), detail))
    for value in (default, high):
        if value is not None and parse(step) and remainder(plus(parse(value), parse(low).copy_negate()), parse(step)):
            detail = f"value is not a multiple of a given step ({canonical(step)}) from ({canonical(low)})"
            errors.append(invalid_value(path, canonical(value), detail))
    return errors
