"""ControllerRevisions: snapshots of a template that DaemonSets and StatefulSets roll back to."""

from __future__ import annotations

from control.registry.changes import IMMUTABLE
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field
from kube.errors import FieldError, invalid_value, required
from kube.json_object import Object


def _controller(owners: list[Object] | None) -> str:
    owner = next((o for o in owners or () if o.get("controller")), None)
    if owner is None:
        return NONE
    group, slash, _ = owner.get("apiVersion", "").partition("/")
    kind = owner.get("kind", "").lower()
    return f"{kind}{f'.{group}' if slash else ''}/{owner.get('name', '')}"


class ControllerRevisionStrategy(Strategy):
    columns = (
        NAME,
        Column("Controller", Field("metadata.ownerReferences", show=_controller), "Whose snapshot it is."),
        Column("Revision", Field("revision", 0)),
        AGE,
    )
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        errors = []
        if obj.get("data") is None:
            errors.append(required("data", "data is mandatory"))
        elif not isinstance(obj["data"], dict):
            errors.append(required("data", "data must be a valid JSON object"))
        if obj.get("revision", 0) < 0:
            errors.append(invalid_value("revision", obj["revision"], "must be greater than or equal to 0"))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = []
        if obj.get("revision", 0) < 0:
            errors.append(invalid_value("revision", obj["revision"], "must be greater than or equal to 0"))
        if obj.get("data") != old.get("data"):  # any JSON, where empty is not absent
            errors.append(invalid_value("data", obj.get("data"), IMMUTABLE))
        return errors
