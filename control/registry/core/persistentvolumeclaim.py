"""PersistentVolumeClaims, on their own and as templates of a StatefulSet."""

from __future__ import annotations

from control.registry.changes import differences, same, validate_immutable
from control.registry.checks import Errors
from control.registry.core.claim_spec import (
    claim_warnings,
    class_of,
    class_warnings,
    default_claim,
    drop_disabled,
    may_get_class,
    validate_claim_spec,
    validate_class_change,
)
from control.registry.field_values import field_value
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, UNSET, Column, Field, access_modes, name_of, phase
from kube.errors import forbidden_field
from kube.json_object import Object
from kube.quantity import canonical, parse

_FROZEN = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def _bound(claim: Object) -> Object:
    """Return the status of a claim that has a volume."""
    return (claim.get("status") or {}) if (claim.get("spec") or {}).get("volumeName") else {}


def _capacity(claim: Object) -> str:
    volume = (claim.get("spec") or {}).get("volumeName")
    return canonical((_bound(claim).get("capacity") or {}).get("storage", 0)) if volume else ""


def _access_modes(claim: Object) -> str:
    return access_modes(_bound(claim).get("accessModes"))


class PersistentVolumeClaimStrategy(Strategy):
    returns_deleted = True
    columns = (
        NAME,
        Column("Status", Field("", show=phase)),
        Column("Volume", Field("spec.volumeName")),
        Column("Capacity", Field("", show=_capacity)),
        Column("Access Modes", Field("", show=_access_modes)),
        Column("StorageClass", Field("", show=class_of)),
        Column("VolumeAttributesClass", Field("spec.volumeAttributesClassName", UNSET)),
        AGE,
        Column("VolumeMode", Field("spec.volumeMode", UNSET), priority=1),
    )
    has_generation = False

    def default(self, obj: Object) -> None:
        default_claim(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}
        drop_disabled(obj.setdefault("spec", {}))

    def validate(self, obj: Object) -> Errors:
        return validate_claim_spec(obj.get("spec") or {}, "spec")

    def validate_update(self, obj: Object, old: Object) -> Errors:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        errors = self.validate(obj) + validate_class_change(obj, old)
        open_to = {"resources"} | ({"volumeName"} if not before.get("volumeName") else {"volumeAttributesClassName"})
        if may_get_class(obj, old):
            open_to.add("storageClassName")  # it may be given a class after the fact
        kept = [{k: v for k, v in s.items() if k not in open_to} for s in (spec, before)]
        if not same(*kept):
            errors.append(forbidden_field("spec", "\n".join([_FROZEN, *differences(kept[1], kept[0])])))
        now_class, was_class = (s.get("volumeAttributesClassName") for s in (spec, before))
        if was_class is not None and now_class is None:
            detail = "update from non-nil value to nil is forbidden"
            errors.append(forbidden_field("spec.volumeAttributesClassName", detail))
        elif was_class is not None and not now_class and now_class != was_class:
            detail = "update from non-nil value to an empty string is forbidden"
            errors.append(forbidden_field("spec.volumeAttributesClassName", detail))
        now, was = (field_value(s, "resources.requests.storage") or 0 for s in (spec, before))
        old_capacity = field_value(old, "status.capacity.storage") or 0
        if not errors and parse(now) != parse(was):
            if (old.get("status") or {}).get("phase") != "Bound":
                errors.append(forbidden_field("spec", _FROZEN))
            # Less may be requested again where more was not available, but never less than there is.
            if parse(now) < parse(was) and parse(now) <= parse(old_capacity):
                detail = "field can not be less than status.capacity"
                errors.append(forbidden_field("spec.resources.requests.storage", detail))
        return errors + validate_immutable(spec, before, "volumeMode")

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return ([] if old else class_warnings(obj)) + claim_warnings(obj.get("spec") or {})

    def fields(self, obj: Object) -> dict[str, str]:
        return {"name": name_of(obj)}
