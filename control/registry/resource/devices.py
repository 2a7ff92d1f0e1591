"""Checks of a device in a ResourceSlice: attributes, capacities, taints, counters, nodes and conditions of its binding.

Upstream: validateDevice in pkg/apis/resource/validation.
"""

from __future__ import annotations

import re

from control.registry.checks import Errors, FieldErrors, at_most, each, one_of, unique
from control.registry.core.pod.placement import NODE_SELECTOR
from control.registry.core.pod.volume_sources import driver_name
from control.registry.resource.capacity_policies import validate_capacity
from kube import names
from kube.errors import duplicate, invalid_value, required, too_long, too_many
from kube.group_patterns import fullmatch
from kube.json_object import Object

MAX_ATTRIBUTES, MAX_VALUES, MAX_VALUE_LENGTH, MAX_IDENTIFIER = 32, 48, 64, 32
MAX_TAINTS, MAX_COUNTERS, MAX_CONSUMPTIONS, MAX_CONDITIONS = 16, 32, 2, 4
LISTS = ("bools", "ints", "strings", "versions")
_VALUES = ("bool", "int", "string", "version", *LISTS)
_PLACES = ("nodeName", "nodeSelector", "allNodes")
_IDENTIFIER = "0|[1-9][0-9]*"
_PART = r"[0-9]*[a-zA-Z-][0-9a-zA-Z-]*"
_SEMVER = re.compile(
    rf"({_IDENTIFIER})\.({_IDENTIFIER})\.({_IDENTIFIER})"
    rf"(-({_IDENTIFIER}|{_PART})(\.({_IDENTIFIER}|{_PART}))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_CHOSEN = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in "
    "the ResourceSlice spec"
)
_NOT_CHOSEN = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)


def validate_device(device: Object, old: Object | None, *, chooses_nodes: bool, path: str) -> Errors:
    """Check a device; `old` is the stored one of its name, `chooses_nodes` if each device names its nodes."""
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    errors = each(f"{path}.name", device.get("name") or "", names.dns1123_label(device.get("name") or ""))
    number = len(attributes) + len(capacity)
    if number > MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}"
        errors.append(invalid_value(path, number, detail))
    values = sum(max(1, sum(len(attribute.get(key) or ()) for key in LISTS)) for attribute in attributes.values())
    if values > MAX_VALUES:
        errors.append(invalid_value(path, values, f"the total number of attribute values must not exceed {MAX_VALUES}"))
    for name, attribute in attributes.items():
        errors += qualified_identifier(name, f"{path}.attributes") + _attribute(attribute, f"{path}.attributes[{name}]")
    shared = bool(device.get("allowMultipleAllocations"))
    for name, found in capacity.items():
        errors += qualified_identifier(name, f"{path}.capacity") + validate_capacity(
            found, shared=shared, path=f"{path}.capacity[{name}]"
        )
    if old is None or (device.get("taints") or []) != (old.get("taints") or []):
        errors += at_most(MAX_TAINTS, device.get("taints") or [], f"{path}.taints", _taint)
    errors += _consumptions(device.get("consumesCounters") or [], f"{path}.consumesCounters")
    return errors + _places(device, chooses_nodes=chooses_nodes, path=path) + binding_conditions(device, path)


def qualified_identifier(name: str, path: str) -> Errors:
    """Check the name of an attribute or capacity, which may begin with a driver's domain."""
    parts = name.split("/")
    if len(parts) == 1:
        return _identifier(name, path)
    if len(parts) > 2:  # upstream accepts these
        return []
    domain, rest = parts
    errors = driver_name(domain, path) if domain else [invalid_value(path, "", "the domain must not be empty")]
    return errors + (_identifier(rest, path) if rest else [invalid_value(path, "", "the name must not be empty")])


def _identifier(name: str, path: str) -> Errors:
    errors = [too_long(path, MAX_IDENTIFIER)] if len(name) > MAX_IDENTIFIER else []
    return errors + each(path, name, names.c_identifier(name))


def _attribute(attribute: Object, path: str) -> Errors:
    given = [key for key in _VALUES if attribute.get(key) is not None]
    errors: Errors = []
    for key in ("string", "version"):
        if key in given:
            errors += _text(attribute[key], f"{path}.{key}", version=key == "version")
    for key in LISTS:
        if key in given and not attribute[key]:
            errors.append(invalid_value(f"{path}.{key}", attribute[key], "must not be empty if specified"))
        for index, text in enumerate(attribute.get(key) or () if key in ("strings", "versions") else ()):
            errors += _text(text, f"{path}.{key}[{index}]", version=key == "versions")
    if len(given) != 1:
        errors.append(invalid_value(path, attribute if given else "", "exactly one value must be specified"))
    return errors


def _text(text: str, path: str, *, version: bool) -> FieldErrors:
    if version and not fullmatch(_SEMVER, text):
        yield invalid_value(path, text, "must be a string compatible with semver.org spec 2.0.0")
    if len(text.encode()) > MAX_VALUE_LENGTH:
        yield too_long(path, MAX_VALUE_LENGTH)


def _taint(taint: Object, path: str) -> Errors:
    errors = each(f"{path}.key", taint.get("key") or "", names.qualified_name(taint.get("key") or ""))
    errors += each(f"{path}.value", taint.get("value"), names.label_value(taint.get("value") or ""))
    return errors + one_of(taint.get("effect"), ("NoExecute", "NoSchedule", "None"), f"{path}.effect")


def _consumptions(consumed: list[Object], path: str) -> Errors:
    errors = at_most(MAX_CONSUMPTIONS, consumed, path, lambda item, place: validate_counters(item, "counterSet", place))
    return errors if len(consumed) > MAX_CONSUMPTIONS else errors + repeated_keys(consumed, "counterSet", path)


def repeated_keys(items: list[Object], key: str, path: str) -> Errors:
    """Check that no two items of a list have one key."""
    seen: set[str] = set()
    return [e for i, item in enumerate(items) for e in unique(f"{path}[{i}]", item.get(key) or "", seen)]


def validate_counters(found: Object, key: str, path: str) -> Errors:
    """Check a set of counters, or what a device consumes of one; `key` is the field of the set's name."""
    name, counters = found.get(key) or "", found.get("counters") or {}
    errors = each(f"{path}.{key}", name, names.dns1123_label(name)) if name else [required(f"{path}.{key}")]
    if not counters:
        return [*errors, required(f"{path}.counters")]
    if len(counters) > MAX_COUNTERS:
        return [*errors, too_many(f"{path}.counters", len(counters), MAX_COUNTERS)]
    return errors + [e for name in counters for e in each(f"{path}.counters", name, names.dns1123_label(name))]


def _places(device: Object, *, chooses_nodes: bool, path: str) -> Errors:
    if not chooses_nodes:
        given = any(device.get(key) is not None for key in _PLACES)
        return [invalid_value(path, None, _NOT_CHOSEN)] if given else []
    errors, chosen = validate_places(device, path, "must not be empty")
    if not chosen:
        return [*errors, required(path, _CHOSEN)]
    return errors if len(chosen) == 1 else [*errors, invalid_value(path, f"{{{', '.join(chosen)}}}", _CHOSEN)]


def validate_places(found: Object, path: str, empty: str) -> tuple[Errors, list[str]]:
    """Check the nodes of a slice or a device; also return the fields that name them."""
    errors, chosen = Errors(), list[str]()
    name, selector, all_nodes = (found.get(key) for key in _PLACES)
    if name == "":
        errors.append(invalid_value(f"{path}.nodeName", name, empty))
    elif name is not None:
        chosen.append("`nodeName`")
        errors += each(f"{path}.nodeName", name, names.dns1123_subdomain(name))
    if selector is not None:
        chosen.append("`nodeSelector`")
        errors += NODE_SELECTOR(selector, f"{path}.nodeSelector")
    if all_nodes:
        chosen.append("`allNodes`")
    elif all_nodes is not None:
        errors.append(invalid_value(f"{path}.allNodes", all_nodes, "must be either unset or set to true"))
    return errors, chosen


def binding_conditions(device: Object, path: str) -> Errors:
    """Check the conditions of a device that is prepared before its pod is bound (KEP-5007)."""
    ready, failed = (device.get(key) or [] for key in ("bindingConditions", "bindingFailureConditions"))
    promised = set(ready)
    errors: Errors = []
    for key, found in (("bindingConditions", ready), ("bindingFailureConditions", failed)):
        errors += at_most(MAX_CONDITIONS, found, f"{path}.{key}", _condition)
    for key, found in (("bindingConditions", ready), ("bindingFailureConditions", failed)):
        seen: set[str] = set()
        for index, name in enumerate(found):
            where = f"{path}.{key}[{index}]"
            if name in seen:
                errors.append(duplicate(where, name))
            seen.add(name)
            if found is failed and name in promised:
                detail = "bindingFailureConditions must not overlap with bindingConditions"
                errors.append(invalid_value(where, name, detail))
    for key, found, other, used in (
        ("bindingConditions", ready, "bindingFailureConditions", failed),
        ("bindingFailureConditions", failed, "bindingConditions", ready),
    ):
        if used and not found:
            errors.append(invalid_value(f"{path}.{key}", found or None, f"{key} are required to use {other}"))
    return errors


def _condition(name: str, path: str) -> Errors:
    return each(path, name, names.qualified_name(name))
