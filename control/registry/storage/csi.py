"""CSIDrivers, CSINodes and CSIStorageCapacities: storage drivers, their nodes, and their free capacity."""

from __future__ import annotations

from dataclasses import replace

from control.registry.changes import IMMUTABLE
from control.registry.checks import Errors, each, label_selector, non_negative, quantity, repeated
from control.registry.core.pod.volume_sources import driver_name
from control.registry.defaults import Defaults, absent
from control.registry.rows import Rows
from control.registry.rules import enum, form, max_bytes, max_characters, maximum, minimum, require, unique_item
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, UNSET, Column, Field, count
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required
from kube.json_object import Object
from kube.names import dns1123_subdomain, qualified_name
from kube.quantity import canonical


def _audiences(requests: list[Object] | None) -> str:
    return ",".join(r.get("audience", "") for r in requests) if requests else UNSET


def _modes(modes: list[str] | None, path: str) -> Errors:
    """Check lifecycle modes; upstream's errors name the list."""
    allowed = ("Persistent", "Ephemeral")
    return [not_supported(path, mode, allowed) for mode in modes or () if mode not in allowed]


def _tokens_in_secrets(spec: Object, path: str) -> Errors:
    value = spec.get("serviceAccountTokenInSecrets")
    if value is None or spec.get("tokenRequests"):
        return []
    detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
    return [invalid_value(f"{path}.serviceAccountTokenInSecrets", value, detail)]


_TOKEN_REQUEST = Rows(
    ("audience", unique_item),
    ("expirationSeconds", minimum(600, "may not specify a duration less than 10 minutes")),
    ("expirationSeconds", maximum(1 << 32, "may not specify a duration larger than 2^32 seconds")),
)


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
    field_rules = Rows(
        ("metadata.name", max_bytes(63)),
        ("spec.fsGroupPolicy", enum("File", "None", "ReadWriteOnceWithFSType")),
        ("spec.volumeLifecycleModes", _modes),
        ("spec.tokenRequests[*]", _TOKEN_REQUEST),
        ("spec.nodeAllocatableUpdatePeriodSeconds", minimum(10, "must be greater than or equal to 10 seconds")),
        ("spec", _tokens_in_secrets),
    )
    immutable = ("spec.attachRequired", "spec.volumeLifecycleModes")
    allow_unconditional_update = False
    field_defaults = Defaults(
        ("spec", absent({})),
        ("spec.attachRequired", absent(True)),
        ("spec.{podInfoOnMount,storageCapacity,requiresRepublish,seLinuxMount}", absent(False)),
        ("spec.fsGroupPolicy", "ReadWriteOnceWithFSType"),
        ("spec.volumeLifecycleModes", ["Persistent"]),
    )

    def default(self, obj: Object) -> None:
        super().default(obj)
        obj["spec"].pop("preventPodSchedulingIfMissing", None)  # an alpha feature's, off as upstream

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        found = super().validate_update(obj, old)
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


def _topology_keys(driver: Object, path: str) -> Errors:
    """Check a driver's topology keys; upstream's errors name the driver."""
    keys, errors = driver.get("topologyKeys") or [], []
    again = repeated(keys)
    for number, key in enumerate(keys):
        errors += [] if key else [required(path)]
        errors += [duplicate(path, key)] if number in again else []
        errors += each(path, key, qualified_name(key))
    return errors


class CSINodeStrategy(Strategy):
    columns = (NAME, Column("Drivers", count("spec.drivers"), "How many drivers the node has.", type="integer"), AGE)
    field_rules = Rows(
        ("spec.drivers[*].name", driver_name, unique_item),
        ("spec.drivers[*].nodeID", require(), max_characters(256, "must be 256 characters or less")),
        ("spec.drivers[*].allocatable.count", non_negative),
        ("spec.drivers[*]", _topology_keys),
    )
    allow_unconditional_update = False
    has_generation = False

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = self.validate(obj)
        before = {d.get("name"): d for d in (old.get("spec") or {}).get("drivers") or ()}
        for driver in (obj.get("spec") or {}).get("drivers") or ():
            was = before.get(driver.get("name"))
            # How many volumes a node takes may change while it runs.
            kept = [{k: v for k, v in (d or {}).items() if k != "allocatable"} for d in (driver, was)]
            if was is not None and kept[0] != kept[1]:
                keys = ("Name", "name"), ("NodeID", "nodeID"), ("TopologyKeys", "topologyKeys"), ("Allocatable", "")
                errors.append(invalid_value("spec.drivers", {key: kept[0].get(name) for key, name in keys}, IMMUTABLE))
        return errors


class CSIStorageCapacityStrategy(Strategy):
    columns = (
        NAME,
        Column("StorageClassName", Field("storageClassName")),
        Column("Capacity", Field("capacity", show=lambda found: UNSET if found is None else canonical(found))),
    )
    field_rules = Rows(
        ("storageClassName", form(dns1123_subdomain)),
        ("nodeTopology", label_selector),
        ("capacity?", quantity),
        ("maximumVolumeSize?", quantity),
    )
    has_generation = False

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        # An empty selector is every node, none at all is no node.
        keys = [k for k in ("nodeTopology", "storageClassName") if obj.get(k) != old.get(k)]
        return [*self.validate(obj), *(invalid_value(k, obj.get(k), IMMUTABLE) for k in keys)]
