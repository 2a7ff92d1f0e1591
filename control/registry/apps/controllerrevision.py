"""ControllerRevisions: snapshots of a template that DaemonSets and StatefulSets roll back to."""

from __future__ import annotations

from control.registry.changes import IMMUTABLE
from control.registry.checks import FieldErrors
from control.registry.rows import Rows
from control.registry.rules import not_negative
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


def _data(data: object, path: str) -> FieldErrors:
    if data is None:
        yield required(path, "data is mandatory")
    elif not isinstance(data, dict):
        yield required(path, "data must be a valid JSON object")


_REVISION = Rows(("revision", not_negative))


class ControllerRevisionStrategy(Strategy):
    columns = (
        NAME,
        Column("Controller", Field("metadata.ownerReferences", show=_controller), "Whose snapshot it is."),
        Column("Revision", Field("revision", 0)),
        AGE,
    )
    has_generation = False
    field_rules = Rows(("data", _data), ("", _REVISION))

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = _REVISION.errors(obj)
        if obj.get("data") != old.get("data"):  # any JSON, where empty is not absent
            errors.append(invalid_value("data", obj.get("data"), IMMUTABLE))
        return errors
