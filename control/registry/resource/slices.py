"""Checks of the slices in which drivers offer devices."""

from __future__ import annotations

from control.registry.checks import Errors, one_of, required_name
from control.registry.resource.validation import request_name
from control.registry.strategy import Object
from kube import names
from kube.errors import invalid_value, required, too_many

MAX_DEVICES, MAX_ATTRIBUTES = 128, 32
_VALUES = ("bool", "bools", "int", "ints", "string", "strings", "version", "versions")
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def validate_slice(spec: Object, path: str) -> Errors:
    pool, devices = spec.get("pool") or {}, spec.get("devices") or []
    errors = required_name(f"{path}.driver", spec.get("driver"), names.dns1123_subdomain)
    if not pool.get("name"):
        errors.append(required(f"{path}.pool.name"))
    if pool.get("resourceSliceCount", 0) <= 0:
        detail = "must be greater than zero"
        errors.append(invalid_value(f"{path}.pool.resourceSliceCount", pool.get("resourceSliceCount", 0), detail))
    given = [place for place in _PLACES if spec.get(place)]
    if not given:
        errors.append(required(path, ONE_PLACE))
    elif len(given) > 1:
        errors.append(invalid_value(path, given, ONE_PLACE))
    if len(devices) > MAX_DEVICES:
        return [*errors, too_many(f"{path}.devices", len(devices), MAX_DEVICES)]
    seen: set[str] = set()
    for index, device in enumerate(devices):
        errors += request_name(device.get("name") or "", seen, f"{path}.devices[{index}].name")
        errors += _device(device, bool(spec.get("perDeviceNodeSelection")), f"{path}.devices[{index}]")
    return errors


def _device(device: Object, chooses_nodes: bool, path: str) -> Errors:
    errors: Errors = []
    attributes = device.get("attributes") or {}
    for name, attribute in attributes.items():
        given = [key for key in _VALUES if attribute.get(key) is not None]
        where = f"{path}.attributes[{name}]"
        if not given:
            errors.append(required(where, "exactly one value must be specified"))
        elif len(given) > 1:
            errors.append(invalid_value(where, attribute, "exactly one value must be specified"))
    if len(attributes) + len(device.get("capacity") or {}) > MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}"
        errors.append(invalid_value(path, len(attributes) + len(device.get("capacity") or {}), detail))
    for index, taint in enumerate(device.get("taints") or []):
        where = f"{path}.taints[{index}]"
        errors += [] if taint.get("key") else [required(f"{where}.key")]
        errors += one_of(taint.get("effect"), ("NoExecute", "NoSchedule", "None"), f"{where}.effect")
    places = [key for key in ("nodeName", "nodeSelector", "allNodes") if device.get(key)]
    if chooses_nodes and len(places) != 1:
        detail = (
            "exactly one of `nodeName`, `nodeSelector`, `allNodes` is required when `perDeviceNodeSelection` is set"
        )
        errors.append(required(path, detail))
    return errors
