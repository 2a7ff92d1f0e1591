"""LimitRanges: limits and defaults for the requests of a namespace's containers."""

from __future__ import annotations

from control.registry.checks import FieldErrors, each, unique
from control.registry.core.resources import container_resource_name, is_exact, standard_name
from control.registry.strategy import Strategy
from control.registry.table_cells import CREATED_AT, NAME
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.json_object import Object
from kube.quantity import parse

_WORDS = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}
# (what may not be more, than what, under whose name it is reported)
_ORDER = (
    ("min", "max", "min"),
    ("min", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest"),
    ("min", "default", "default"),
    ("default", "max", "default"),
)


def _validate_item(item: Object, kind: str, path: str) -> FieldErrors:
    if kind == "Pod":
        for key in ("default", "defaultRequest"):
            if item.get(key):
                yield forbidden_field(f"{path}.{key}", "may not be specified when `type` is 'Pod'")
    check = container_resource_name if kind in ("Pod", "Container") else standard_name
    for key in (*_WORDS, "maxLimitRequestRatio"):
        for name in item.get(key) or {}:
            yield from check(name, f"{path}.{key}[{name}]")
    if kind == "PersistentVolumeClaim" and not any("storage" in (item.get(k) or {}) for k in ("min", "max")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", detail)
    for low, high, field in _ORDER:
        if kind == "Pod" and "default" in f"{low}{high}".lower():
            continue
        for name, amount in (item.get(low) or {}).items():
            most = (item.get(high) or {}).get(name)
            if most is not None and parse(amount) > parse(most):
                word = "default limit" if (low, high) == ("defaultRequest", "default") else _WORDS[high]
                detail = f"{_WORDS[low]} value {amount} is greater than {word} value {most}"
                value = item[field][name] if field != "default" else (amount if low == "min" else most)
                yield invalid_value(f"{path}.{field}[{name}]", str(value), detail)
    for name, amount in (item.get("default") or {}).items() if kind != "Pod" else ():
        asked = (item.get("defaultRequest") or {}).get(name)
        if asked is not None and is_exact(name) and parse(asked) != parse(amount):
            detail = f"default value {amount} must equal to defaultRequest value {asked} in {name}"
            yield invalid_value(f"{path}.defaultRequest[{name}]", str(asked), detail)
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        where = f"{path}.maxLimitRequestRatio[{name}]"
        if parse(ratio) < 1:
            yield invalid_value(where, str(ratio), f"ratio {ratio} is less than 1")
        least, greatest = ((item.get(k) or {}).get(name) for k in ("min", "max"))
        if least is None or greatest is None or not parse(least):
            continue
        if parse(ratio) > parse(greatest) / parse(least):
            most = float(parse(greatest) / parse(least))
            yield invalid_value(where, str(ratio), f"ratio {ratio} is greater than max/min = {most:f}")


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
            problems = each(f"{path}.type", kind, names.qualified_name(kind))
            if not problems and "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim"):
                detail = "must be a standard limit type or fully qualified"
                problems = [invalid_value(f"{path}.type", kind, detail)]
            errors += problems
            errors += unique(f"{path}.type", kind, seen)
            errors += _validate_item(item, kind, path)
        return errors
