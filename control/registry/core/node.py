"""Nodes: STATUS from the Ready condition and cordoning, ROLES from labels."""

from __future__ import annotations

import json
import re
from datetime import datetime
from itertools import zip_longest
from typing import Any

from control.registry.checks import FieldErrors, each, one_of
from control.registry.core.resources import amount_of
from control.registry.ip_checks import cidr, cidr_warnings, non_special_ip, one_cidr_a_family
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.tables import age
from kube import names
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value
from kube.ip_addresses import reached
from kube.json_object import Object

_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*+")
_FEATURE_RULE = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
_ROLE_PREFIX = "node-role.kubernetes.io/"


class NodeStrategy(Strategy):
    columns = (
        NAME,
        Column("Status", description="Whether the node is ready and takes pods."),
        Column("Roles", description="The roles of the node."),
        AGE,
        Column("Version", description="Version of the node's kubelet."),
        Column("Internal-IP", priority=1),
        Column("External-IP", priority=1),
        Column("OS-Image", priority=1),
        Column("Kernel-Version", priority=1),
        Column("Container-Runtime", priority=1),
    )
    has_generation = False

    def prepare_create(self, obj: Object) -> None:
        """Keep the status, unlike other kinds: a kubelet registers its Node with it."""

    def default(self, obj: Object) -> None:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        # podCIDR is the first of podCIDRs; either may be given, and where they differ the one is right.
        first = spec["podCIDRs"][0] if spec.get("podCIDRs") else ""
        if not spec.get("podCIDR") and first:
            spec["podCIDR"] = first
        elif spec.get("podCIDR") and spec["podCIDR"] != first:
            spec["podCIDRs"] = [spec["podCIDR"]]
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def validate(self, obj: Object) -> list[FieldError]:
        info = (obj.get("status") or {}).get("nodeInfo") or {}
        capacity = (info.get("swap") or {}).get("capacity")
        errors = self._validate(obj)
        if capacity is not None and capacity <= 0:
            # Upstream's place for it, and only when a node is created.
            errors.append(invalid_value("metadata.nodeSwapStatus.capacity", capacity, "must be greater than zero"))
        return errors

    def _validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = list(_validate_taints(spec.get("taints") or []))
        ranges = spec.get("podCIDRs") or []
        for index, text in enumerate(ranges):
            errors += cidr(text, f"spec.podCIDRs[{index}]")
        errors += one_cidr_a_family(ranges, "spec.podCIDRs")
        return [*errors, *_validate_status(obj.get("status") or {})]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        errors = self._validate(obj)
        for key, text in (("podCIDRs", 'node updates may not change podCIDR except from "" to valid'),):
            if before.get(key) and spec.get(key) != before[key]:
                errors.append(forbidden_field(f"spec.{key}", text))
        if before.get("providerID") and spec.get("providerID") != before["providerID"]:
            detail = 'node updates may not change providerID except from "" to valid'
            errors.append(forbidden_field("spec.providerID", detail))
        return errors

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return list(_validate_status(obj.get("status") or {}))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        spec = obj.get("spec") or {}
        found = ["spec.configSource: the feature is removed"] if spec.get("configSource") is not None else []
        if spec.get("externalID"):
            found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return found + list(cidr_warnings(obj, "spec.podCIDRs[*]"))

    def fields(self, obj: Object) -> dict[str, str]:
        return {"spec.unschedulable": "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        status = obj.get("status") or {}
        info = status.get("nodeInfo") or {}
        addresses = status.get("addresses") or []
        return [
            name_of(obj),
            _status(obj),
            ",".join(_roles(obj)) or NONE,
            age(created(obj), now),
            info.get("kubeletVersion") or "",
            _address(addresses, "InternalIP"),
            _address(addresses, "ExternalIP"),
            info.get("osImage") or "<unknown>",
            info.get("kernelVersion") or "<unknown>",
            info.get("containerRuntimeVersion") or "<unknown>",
        ]


def _validate_taints(taints: list[Object]) -> FieldErrors:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"metadata.taints[{index}]"  # upstream's place for them
        key, value, effect = (taint.get(k) or "" for k in ("key", "value", "effect"))
        yield from each(f"{where}.key", key, names.qualified_name(key))
        problems = names.label_value(value)
        if problems:
            yield invalid_value(f"{where}.value", value, ";".join(problems))
        yield from one_of(effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"), f"{where}.effect")
        if (key, effect) in seen:
            found = duplicate(where, taint)
            yield FieldError(found.path, found.type, "taints must be unique by key and effect pair", taint)
        seen.add((key, effect))


def _validate_status(status: Object) -> FieldErrors:
    """Reject duplicate addresses, and those with which a request for the node would reach this server itself."""
    yield from _validate_declared_features(status.get("declaredFeatures") or [], "status.declaredFeatures")
    for key in ("capacity", "allocatable"):
        for name, amount in (status.get(key) or {}).items():
            yield from amount_of(name, amount, f"status.{key}.{name}")
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(status.get("addresses") or ()):
        kind, address = item.get("type") or "", item.get("address") or ""
        if (kind, address) in seen:
            yield duplicate(f"status.addresses[{index}]", item)
        seen.add((kind, address))
        if kind in ("InternalIP", "ExternalIP"):
            yield from _dialable(address, f"status.addresses[{index}].address")


def _validate_declared_features(features: list[str], path: str) -> FieldErrors:
    """Check the names of features: in order, each once."""
    for index, (name, following) in enumerate(zip_longest(features, features[1:])):
        if len(name) > names.SUBDOMAIN_LENGTH:
            detail = (
                f"invalid feature name {json.dumps(name)}: must be no more than {names.SUBDOMAIN_LENGTH} characters"
            )
            yield invalid_value(f"{path}[{index}]", name, detail)
        elif not _FEATURE.fullmatch(name):
            yield invalid_value(f"{path}[{index}]", name, f"invalid feature name {json.dumps(name)}: {_FEATURE_RULE}")
        if following == name:
            yield duplicate(f"{path}[{index + 1}]", following)
        elif following is not None and following < name:
            yield invalid_value(f"{path}[{index + 1}]", following, "list must be sorted alphabetically")


def _dialable(address: str, path: str) -> list[FieldError]:
    """Check an address that this server connects to: leading zeros, which upstream ignores, may mean another one."""
    try:
        reached(address)
    except ValueError:
        return [invalid_value(path, address, "must be a valid IP address")]
    return non_special_ip(address, path)


def _status(node: Object) -> str:
    ready = {c.get("type"): c.get("status") for c in (node.get("status") or {}).get("conditions") or ()}.get("Ready")
    shown = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        shown.append("SchedulingDisabled")
    return ",".join(shown)


def _roles(node: Object) -> list[str]:
    roles = set()
    for key, value in (node.get("metadata", {}).get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX) and len(key) > len(_ROLE_PREFIX):
            roles.add(key[len(_ROLE_PREFIX) :])
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return sorted(roles)


def _address(addresses: list[Object], kind: str) -> str:
    return next((a.get("address", "") for a in addresses if a.get("type") == kind), NONE)
