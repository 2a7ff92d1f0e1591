"""CSIDrivers, CSINodes and CSIStorageCapacities: what storage drivers there are, where, and how much they have left."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, UNSET, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required
from kube.quantity import canonical

_FLAGS = {"attachRequired": True, "podInfoOnMount": False, "storageCapacity": False}


class CSIDriverStrategy(Strategy):
    columns = (
        NAME,
        Column("AttachRequired", "boolean"),
        Column("PodInfoOnMount", "boolean"),
        Column("StorageCapacity", "boolean"),
        Column("TokenRequests"),
        Column("RequiresRepublish", "boolean"),
        Column("Modes"),
        AGE,
    )
    allow_unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        for key, value in {**_FLAGS, "requiresRepublish": False, "seLinuxMount": False}.items():
            if spec.get(key) is None:
                spec[key] = value
        if not spec.get("fsGroupPolicy"):
            spec["fsGroupPolicy"] = "ReadWriteOnceWithFSType"
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = []
        if len(name_of(obj)) > 63:
            errors.append(FieldError("metadata.name", "Too long", "may not be more than 63 bytes"))
        policies = ("ReadWriteOnceWithFSType", "File", "None")
        if spec.get("fsGroupPolicy") not in policies:
            errors.append(not_supported("spec.fsGroupPolicy", spec.get("fsGroupPolicy"), policies))
        for mode in spec.get("volumeLifecycleModes") or ():
            if mode not in ("Persistent", "Ephemeral"):
                errors.append(not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral")))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = self.validate(obj)
        for key in ("attachRequired", "volumeLifecycleModes"):
            value = (obj.get("spec") or {}).get(key)
            if value != (old.get("spec") or {}).get(key):
                errors.append(invalid_value(f"spec.{key}", value, "field is immutable"))
        return errors

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        flags = [default if spec.get(key) is None else spec[key] for key, default in _FLAGS.items()]
        requests = spec.get("tokenRequests")
        return [
            name_of(obj),
            *flags,
            ",".join(r.get("audience", "") for r in requests) if requests else UNSET,
            bool(spec.get("requiresRepublish")),
            ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
            age(created(obj), now),
        ]


class CSINodeStrategy(Strategy):
    columns = (NAME, Column("Drivers", "integer", description="How many drivers the node has."), AGE)
    allow_unconditional_update = False
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        errors, seen = [], set()
        for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
            path, name = f"spec.drivers[{index}]", driver.get("name") or ""
            if not name:
                errors.append(required(f"{path}.name"))
            elif name in seen:
                errors.append(duplicate(f"{path}.name", name))
            seen.add(name)
            if not driver.get("nodeID"):
                errors.append(required(f"{path}.nodeID"))
        return errors

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), len((obj.get("spec") or {}).get("drivers") or ()), age(created(obj), now)]


class CSIStorageCapacityStrategy(Strategy):
    columns = (NAME, Column("StorageClassName"), Column("Capacity"))
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        return [] if obj.get("storageClassName") else [required("storageClassName")]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        keys = [k for k in ("nodeTopology", "storageClassName") if obj.get(k) != old.get(k)]
        return [invalid_value(k, obj.get(k), "field is immutable") for k in keys]

    def row(self, obj: Object, now: datetime) -> list[Any]:
        capacity = obj.get("capacity")
        return [name_of(obj), obj.get("storageClassName") or "", UNSET if capacity is None else canonical(capacity)]
