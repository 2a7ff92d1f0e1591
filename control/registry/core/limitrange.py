"""LimitRanges: what containers of a namespace may ask for, and what they get unasked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import CREATED_AT, NAME, created, name_of
from control.registry.checks import each
from control.registry.strategy import Object, Strategy
from kube import names
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value
from kube.quantity import parse


def _validate_item(item: Object, kind: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if kind == "Pod":
        for key in ("default", "defaultRequest"):
            if item.get(key):
                errors.append(forbidden_field(f"{path}.{key}", "may not be specified when `type` is 'Pod'"))
    # Each amount may not be more than the one after it.
    order = ("min", "defaultRequest", "default", "max")
    for number, low in enumerate(order):
        for high in order[number + 1 :]:
            if "default" in (low, high) and kind == "Pod":
                continue
            for name, amount in (item.get(low) or {}).items():
                most = (item.get(high) or {}).get(name)
                if most is not None and parse(amount) > parse(most):
                    words = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}
                    detail = f"{words[low]} value {amount} is greater than {words[high]} value {most}"
                    errors.append(invalid_value(f"{path}.{low}[{name}]", str(amount), detail))
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        if parse(ratio) < 1:
            errors.append(
                invalid_value(f"{path}.maxLimitRequestRatio[{name}]", str(ratio), f"ratio {ratio} is less than 1")
            )
    return errors


class LimitRangeStrategy(Strategy):
    columns = (NAME, CREATED_AT)
    allow_create_on_update = True
    has_generation = False

    def default(self, obj: Object) -> None:
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            # The default limit falls to the maximum, the default request to the default limit, then the minimum.
            for target, sources in (("default", ("max",)), ("defaultRequest", ("default", "min"))):
                for source in sources:
                    for name, quantity in (item.get(source) or {}).items():
                        item.setdefault(target, {}).setdefault(name, quantity)

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
            path, kind = f"spec.limits[{index}]", item.get("type") or ""
            errors += each(f"{path}.type", kind, names.qualified_name(kind))
            if kind in seen:
                errors.append(duplicate(f"{path}.type", kind))
            seen.add(kind)
            errors += _validate_item(item, kind, path)
        return errors

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), created(obj) or ""]
