"""Namespaces: born Active with the kubernetes finalizer, which the namespace controller takes off when all is gone."""

from __future__ import annotations

from datetime import datetime

from control.registry.checks import each
from control.registry.deletion_plan import Outcome
from control.registry.finalizers import finalizer_standard
from control.registry.naming import label
from control.registry.strategy import Strategy, keep
from control.registry.table_cells import AGE, NAME, Column, Field, name_of
from kube.clock import format_time
from kube.errors import FieldError, invalid_value
from kube.json_object import Object
from kube.names import qualified_name

NAME_LABEL = "kubernetes.io/metadata.name"


def _validate_finalizer(name: str, path: str) -> list[FieldError]:
    return each(path, name, qualified_name(name)) + finalizer_standard(name, path)


class NamespaceStrategy(Strategy):
    columns = (NAME, Column("Status", Field("status.phase"), "The status of the namespace."), AGE)
    has_generation = False
    name_rule = staticmethod(label)

    def plan_deletion(self, obj: Object, now: datetime) -> Outcome | None:
        """Mark a namespace as Terminating first; it goes when the namespace controller has emptied it."""
        meta = obj["metadata"]
        if meta.get("deletionTimestamp") is None:
            meta["deletionTimestamp"] = format_time(now)
            obj.setdefault("status", {})["phase"] = "Terminating"
            return "mark"
        return "pending" if self.blocks_deletion(obj) else None

    def blocks_deletion(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))

    def default(self, obj: Object) -> None:
        metadata = obj.setdefault("metadata", {})
        if metadata.get("name"):
            metadata.setdefault("labels", {})[NAME_LABEL] = metadata["name"]

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"phase": "Active"}
        finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")

    def prepare_update(self, obj: Object, old: Object) -> None:
        # The finalizers of spec are changed through the finalize subresource alone.
        keep(obj, old, "spec")
        keep(obj, old, "status")

    def prepare_subresource(self, subresource: str, obj: Object, old: Object) -> None:
        if subresource == "finalize":
            keep(obj, old, "status")
        else:
            super().prepare_subresource(subresource, obj, old)

    def validate(self, obj: Object) -> list[FieldError]:
        errors = []
        for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
            errors += _validate_finalizer(finalizer, "spec.finalizers")
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return []

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        going, phase = bool(obj.get("metadata", {}).get("deletionTimestamp")), (obj.get("status") or {}).get("phase")
        wanted = "Terminating" if going else "Active"
        if phase == wanted:
            return []
        detail = f"may only be '{wanted}' if `deletionTimestamp` is {'not empty' if going else 'empty'}"
        return [invalid_value("status.Phase", phase or "", detail)]

    def validate_subresource(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        if subresource != "finalize":
            return super().validate_subresource(subresource, obj, old)
        errors = []
        for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
            errors += _validate_finalizer(finalizer, "spec.finalizers")
        return errors

    def fields(self, obj: Object) -> dict[str, str]:
        return {"name": name_of(obj), "status.phase": (obj.get("status") or {}).get("phase") or ""}
