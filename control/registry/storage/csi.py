"""CSIDrivers, CSINodes and CSIStorageCapacities: storage drivers, their nodes, and their free capacity."""

from __future__ import annotations

from dataclasses import replace

from control.registry.changes import IMMUTABLE, validate_immutable
from control.registry.checks import each, label_selector, non_negative, quantity, repeated
from control.registry.core.pod.volume_sources import driver_name
from control.registry.defaults import default_absent, default_empty
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, UNSET, Column, Field, count, name_of
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required, too_long
from kube.json_object import Object
from kube.names import dns1123_subdomain, qualified_name
from kube.quantity import canonical


def _audiences(requests: list[Object] | None) -> str:
    return ",".join(r.get("audience", "") for r in requests) if requests else UNSET


class CSIDriverStrategy(Strategy):
    columns = (
        NAME,
        Column("AttachRequired", Field("spec.attachRequired", show=lambda found: found is not False), type="boolean"),
        Column("PodInfoOnMount", Field("spec.podInfoOnMount", False), type="boolean"),
        Column("StorageCapacity", Field("spec.storageCapacity", False), type="boolean"),
        Column("TokenRequests", Field("spec.tokenRequests", show=_audiences)),
        Column("RequiresRepublish", Field("spec.requiresRepublish", False), type="boolean"),
        Column("Modes", Field("spec.volumeLifecycleModes", show=lambda modes: ",".join(modes or ()) or NONE)),
        AGE,
    )
    allow_unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.pop("preventPodSchedulingIfMissing", None)  # an alpha feature's, off as upstream
        default_absent(spec, ("attachRequired", True), ("podInfoOnMount", False), ("storageCapacity", False))
        default_absent(spec, ("requiresRepublish", False), ("seLinuxMount", False))
        default_empty(spec, ("fsGroupPolicy", "ReadWriteOnceWithFSType"), ("volumeLifecycleModes", ["Persistent"]))

    def validate(self, obj: Object) -> list[FieldError]:
        errors = [too_long("metadata.name", 63)] if len(name_of(obj)) > 63 else []
        return errors + self._validate_spec(obj.get("spec") or {})

    def _validate_spec(self, spec: Object) -> list[FieldError]:
        errors = []
        policies = ("File", "None", "ReadWriteOnceWithFSType")
        if spec.get("fsGroupPolicy") not in policies:
            errors.append(not_supported("spec.fsGroupPolicy", spec.get("fsGroupPolicy"), policies))
        for mode in spec.get("volumeLifecycleModes") or ():
            if mode not in ("Persistent", "Ephemeral"):
                errors.append(not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral")))
        errors += _token_requests(spec.get("tokenRequests") or [], "spec.tokenRequests")
        period, in_secrets = spec.get("nodeAllocatableUpdatePeriodSeconds"), spec.get("serviceAccountTokenInSecrets")
        if period is not None and period < 10:
            detail = "must be greater than or equal to 10 seconds"
            errors.append(invalid_value("spec.nodeAllocatableUpdatePeriodSeconds", period, detail))
        if in_secrets is not None and not spec.get("tokenRequests"):
            detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            errors.append(invalid_value("spec.serviceAccountTokenInSecrets", in_secrets, detail))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        found = self._validate_spec(obj.get("spec") or {})
        found += validate_immutable(obj, old, "spec.attachRequired", "spec.volumeLifecycleModes")
        # Upstream spells one path differently.
        return [replace(e, path="spec.attachedRequired") if e.path == "spec.attachRequired" else e for e in found]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        spec = obj.get("spec") or {}
        if not spec.get("tokenRequests") or spec.get("serviceAccountTokenInSecrets") is not None:
            return []
        return [
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
            "logging of tokens in volume attributes"
        ]


_LONGEST_NODE = 256


def _token_requests(requests: list[Object], path: str) -> list[FieldError]:
    """Check a driver's requests for tokens of pods' service accounts."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        audience, seconds = request.get("audience") or "", request.get("expirationSeconds")
        if audience in seen:
            errors.append(duplicate(f"{path}[{index}].audience", audience))
        seen.add(audience)
        where = f"{path}[{index}].expirationSeconds"
        if seconds is not None and seconds < 600:
            errors.append(invalid_value(where, seconds, "may not specify a duration less than 10 minutes"))
        if seconds is not None and seconds > 1 << 32:
            errors.append(invalid_value(where, seconds, "may not specify a duration larger than 2^32 seconds"))
    return errors


class CSINodeStrategy(Strategy):
    columns = (NAME, Column("Drivers", count("spec.drivers"), "How many drivers the node has.", type="integer"), AGE)
    allow_unconditional_update = False
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
            path, name = f"spec.drivers[{index}]", driver.get("name") or ""
            errors += driver_name(name, f"{path}.name")
            if name in seen:
                errors.append(duplicate(f"{path}.name", name))
            seen.add(name)
            node = driver.get("nodeID") or ""
            if not node:
                errors.append(required(f"{path}.nodeID"))
            elif len(node) > _LONGEST_NODE:
                errors.append(invalid_value(f"{path}.nodeID", node, f"must be {_LONGEST_NODE} characters or less"))
            errors += non_negative((driver.get("allocatable") or {}).get("count"), f"{path}.allocatable.count")
            keys = driver.get("topologyKeys") or []
            again = repeated(keys)
            for number, key in enumerate(keys):
                errors += [] if key else [required(path)]
                if number in again:
                    errors.append(duplicate(path, key))
                errors += each(path, key, qualified_name(key))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = self.validate(obj)
        before = {d.get("name"): d for d in (old.get("spec") or {}).get("drivers") or ()}
        for driver in (obj.get("spec") or {}).get("drivers") or ():
            was = before.get(driver.get("name"))
            # How many volumes a node takes may change while it runs.
            kept = [{k: v for k, v in (d or {}).items() if k != "allocatable"} for d in (driver, was)]
            if was is not None and kept[0] != kept[1]:
                keys = ("Name", "name"), ("NodeID", "nodeID"), ("TopologyKeys", "topologyKeys"), ("Allocatable", "")
                shown = {key: kept[0].get(name) for key, name in keys}
                errors.append(invalid_value("spec.drivers", shown, IMMUTABLE))
        return errors


class CSIStorageCapacityStrategy(Strategy):
    columns = (
        NAME,
        Column("StorageClassName", Field("storageClassName")),
        Column("Capacity", Field("capacity", show=lambda found: UNSET if found is None else canonical(found))),
    )
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        name = obj.get("storageClassName") or ""
        errors = each("storageClassName", name, dns1123_subdomain(name))
        errors += label_selector(obj.get("nodeTopology"), "nodeTopology")
        for key in ("capacity", "maximumVolumeSize"):
            if obj.get(key) is not None:
                errors += quantity(obj[key], key)
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        # An empty selector is every node, none at all is no node.
        keys = [k for k in ("nodeTopology", "storageClassName") if obj.get(k) != old.get(k)]
        return [*self.validate(obj), *(invalid_value(k, obj.get(k), IMMUTABLE) for k in keys)]
