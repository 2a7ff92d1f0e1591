"""ControllerRevisions: snapshots of a template that DaemonSets and StatefulSets roll back to."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value, required


class ControllerRevisionStrategy(Strategy):
    columns = (NAME, Column("Controller", description="Whose snapshot it is."), Column("Revision"), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        errors = []
        if obj.get("data") is None:
            errors.append(required("data", "data is mandatory"))
        if obj.get("revision", 0) < 0:
            errors.append(invalid_value("revision", obj["revision"], "must be greater than or equal to 0"))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = []
        if obj.get("revision", 0) < 0:
            errors.append(invalid_value("revision", obj["revision"], "must be greater than or equal to 0"))
        if obj.get("data") != old.get("data"):
            errors.append(invalid_value("data", obj.get("data"), "field is immutable"))
        return errors

    def row(self, obj: Object, now: datetime) -> list[Any]:
        owners = obj.get("metadata", {}).get("ownerReferences") or []
        owner = next((o for o in owners if o.get("controller")), None)
        shown = NONE
        if owner:
            group, slash, _ = owner.get("apiVersion", "").partition("/")
            kind = owner.get("kind", "").lower() + (f".{group}" if slash else "")
            shown = f"{kind}/{owner.get('name', '')}"
        return [name_of(obj), shown, obj.get("revision", 0), age(created(obj), now)]
