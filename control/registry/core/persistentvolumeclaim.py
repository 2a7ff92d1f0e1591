"""PersistentVolumeClaims, on their own and as templates of a StatefulSet."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, UNSET, Column, created, name_of
from control.registry.checks import Errors, each, label_selector, one_of, quantity, unchanged
from control.registry.core.persistentvolume import class_of, class_warnings
from control.registry.core.pod_update import differences, same
from control.registry.core.storage_cells import access_modes, phase
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube import names
from kube.errors import forbidden_field, invalid_value, not_supported, required
from kube.quantity import QuantityError, canonical, parse, remainder


def default_claim(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("volumeMode"):
        spec["volumeMode"] = "Filesystem"
    if not (obj.get("status") or {}).get("phase"):
        obj.setdefault("status", {})["phase"] = "Pending"
    _mirror_sources(spec)


def drop_disabled(spec: Object) -> None:
    """Drop a source in another namespace, which an alpha feature would allow."""
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        spec.pop("dataSourceRef")


def _mirror_sources(spec: Object) -> None:
    """Keep dataSource and dataSourceRef, two names of one thing, the same; a namespaced reference has the new name only."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = {k: v for k, v in reference.items() if k in ("apiGroup", "kind", "name")}


_SOURCE_KEYS = ("apiGroup", "kind", "name")
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_FROZEN = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def validate_access_modes(modes: list[str] | None, path: str) -> Errors:
    if not modes:
        return [required(path, "at least 1 access mode is required")]
    errors = [not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        errors.append(forbidden_field(path, "may not use ReadWriteOncePod with other access modes"))
    return errors


def validate_claim_spec(spec: Object, path: str) -> Errors:
    """Check what is claimed, of a claim or of a volume's claim template."""
    errors = validate_access_modes(spec.get("accessModes"), f"{path}.accessModes")
    errors += label_selector(spec.get("selector"), f"{path}.selector")
    size, where = ((spec.get("resources") or {}).get("requests") or {}).get("storage"), f"{path}.resources[storage]"
    if size is None:
        errors.append(required(where))
    else:
        wrong = quantity(size, where)
        if not wrong and parse(size) == 0:
            wrong = [invalid_value(where, str(size), "must be greater than zero")]
        errors += wrong
    for key in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(key):
            errors += each(f"{path}.{key}", spec[key], names.dns1123_subdomain(spec[key]))
    for key in ("dataSource", "dataSourceRef"):
        if spec.get(key) is not None:
            errors += _validate_source(spec[key], f"{path}.{key}")
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef") or {}
    if source is not None and reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        errors.append(invalid_value(path, f"{path}.dataSource", detail))
    elif source is not None and reference and any(source.get(k) != reference.get(k) for k in _SOURCE_KEYS):
        errors.append(invalid_value(path, f"{path}.dataSource", "must match dataSourceRef"))
    if reference.get("namespace"):
        namespace = reference["namespace"]
        errors += each(f"{path}.dataSourceRef.namespace", namespace, names.dns1123_label(namespace))
    return errors + one_of(spec.get("volumeMode"), ("Block", "Filesystem"), f"{path}.volumeMode", needed=False)


def _validate_source(source: Object, path: str) -> Errors:
    errors = [required(f"{path}.{key}") for key in ("name", "kind") if not source.get(key)]
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid_value(path, kind, detail))
    return errors + (each(f"{path}.apiGroup", group, names.dns1123_subdomain(group)) if group else [])


def claim_warnings(spec: Object, path: str = "spec") -> list[str]:
    """Return warnings about what is claimed: a size with a fraction of a byte."""
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    try:
        fractional = size is not None and remainder(parse(size), 1) != 0
    except QuantityError:
        return []
    where = f"{path}.resources.requests[storage]"
    return [f'{where}: fractional byte value "{size}" is invalid, must be an integer'] if fractional else []


class PersistentVolumeClaimStrategy(Strategy):
    columns = (
        NAME,
        Column("Status"),
        Column("Volume"),
        Column("Capacity"),
        Column("Access Modes"),
        Column("StorageClass"),
        Column("VolumeAttributesClass"),
        AGE,
        Column("VolumeMode", priority=1),
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
        errors = self.validate(obj)
        open_to = {"resources"} | ({"volumeName"} if not before.get("volumeName") else {"volumeAttributesClassName"})
        if before.get("storageClassName") is None:
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
        now, was = (((s.get("resources") or {}).get("requests") or {}).get("storage", 0) for s in (spec, before))
        held = ((old.get("status") or {}).get("capacity") or {}).get("storage", 0)
        if not errors and parse(now) != parse(was):
            if (old.get("status") or {}).get("phase") != "Bound":
                errors.append(forbidden_field("spec", _FROZEN))
            # Less may be asked for again where more could not be had, but never less than there is.
            if parse(now) < parse(was) and parse(now) <= parse(held):
                detail = "field can not be less than status.capacity"
                errors.append(forbidden_field("spec.resources.requests.storage", detail))
        return errors + unchanged(spec, before, "volumeMode", "volumeMode")

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return ([] if old else class_warnings(obj)) + claim_warnings(obj.get("spec") or {})

    def fields(self, obj: Object) -> dict[str, str]:
        return {"name": name_of(obj)}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        volume, size, modes = spec.get("volumeName") or "", "", ""
        if volume:
            modes = access_modes(status.get("accessModes"))
            size = canonical((status.get("capacity") or {}).get("storage", 0))
        return [
            name_of(obj),
            phase(obj),
            volume,
            size,
            modes,
            class_of(obj),
            spec.get("volumeAttributesClassName") or UNSET,
            age(created(obj), now),
            spec.get("volumeMode") or UNSET,
        ]
