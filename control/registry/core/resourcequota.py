"""ResourceQuotas: limits of a namespace's total usage."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.core.quota_scopes import validate_scopes
from control.registry.core.resources import COUNTED, STANDARD, amount_of, standard_name
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, created, name_of
from control.registry.tables import age
from kube.errors import FieldError, invalid_value
from kube.json_object import Object
from kube.quantity import canonical

_PREFIXES = ("requests.", "limits.", "hugepages-")


class ResourceQuotaStrategy(Strategy):
    returns_deleted = True
    columns = (
        NAME,
        Column("Request", description="What is used of what may be asked for."),
        Column("Limit", description="What is used of what limits may come to."),
        AGE,
    )
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        for name, amount in (spec.get("hard") or {}).items():
            path = f"spec.hard[{name}]"
            errors += standard_name(name, path)
            if "/" not in name and not name.startswith(_PREFIXES) and name not in (*STANDARD, *COUNTED):
                errors.append(invalid_value(path, name, "must be a standard resource for quota"))
            errors += amount_of(name, amount, path)
        return errors + validate_scopes(spec, "spec")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        now, was = (set((o.get("spec") or {}).get("scopes") or ()) for o in (obj, old))
        errors = self.validate(obj)
        if now != was:
            errors.append(invalid_value("spec.scopes", sorted(now), "field is immutable"))
        return errors

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status, errors = obj.get("status") or {}, []
        for key in ("hard", "used"):
            for name, amount in (status.get(key) or {}).items():
                path = f"status.{key}[{name}]"
                errors += standard_name(name, path) + amount_of(name, amount, path)
        return errors

    def row(self, obj: Object, now: datetime) -> list[Any]:
        status = obj.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        shown: dict[bool, list[str]] = {True: [], False: []}
        for name in sorted(hard):
            text = f"{name}: {canonical(used.get(name, 0))}/{canonical(hard[name])}"
            shown[name.startswith("limits.")].append(text)
        return [name_of(obj), ", ".join(shown[False]), ", ".join(shown[True]), age(created(obj), now)]
