"""Checks of resource.k8s.io: claims on devices, and the slices in which drivers offer them."""

from __future__ import annotations

from control.registry.checks import Errors, each, one_of
from control.registry.strategy import Object
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, required

MAX_REQUESTS, MAX_ALTERNATIVES, MAX_DEVICES = 32, 8, 128
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def validate_claim(spec: Object, path: str) -> Errors:
    """Check a claim's spec, its own or that of a template."""
    requests, where = (spec.get("devices") or {}).get("requests") or [], f"{path}.devices.requests"
    if len(requests) > MAX_REQUESTS:
        return [FieldError(where, "Too many", f"must have at most {MAX_REQUESTS} items", len(requests))]
    errors: Errors = []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        errors += _name(request.get("name") or "", seen, f"{where}[{index}].name")
        errors += _request(request, f"{where}[{index}]")
    return errors


def _request(request: Object, path: str) -> Errors:
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        return [required(path, "exactly one of `exactly` or `firstAvailable` is required")]
    if exactly is not None and alternatives:
        detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        return [invalid_value(path, request, detail)]
    if exactly is not None:
        return _wanted(exactly, f"{path}.exactly")
    where = f"{path}.firstAvailable"
    if len(alternatives) > MAX_ALTERNATIVES:
        return [FieldError(where, "Too many", f"must have at most {MAX_ALTERNATIVES} items", len(alternatives))]
    errors: Errors = []
    seen: set[str] = set()
    for index, alternative in enumerate(alternatives):
        errors += _name(alternative.get("name") or "", seen, f"{where}[{index}].name")
        errors += _wanted(alternative, f"{where}[{index}]")
    return errors


def _wanted(request: Object, path: str) -> Errors:
    device_class, mode, count = (request.get(k) for k in ("deviceClassName", "allocationMode", "count"))
    errors: Errors = []
    if not device_class:
        errors.append(required(f"{path}.deviceClassName"))
    else:
        errors += each(f"{path}.deviceClassName", device_class, names.dns1123_subdomain(device_class))
    errors += one_of(mode, ("All", "ExactCount"), f"{path}.allocationMode")
    if mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        errors.append(invalid_value(f"{path}.count", count, detail))
    elif mode == "ExactCount" and (count or 0) <= 0:
        errors.append(invalid_value(f"{path}.count", count, "must be greater than zero"))
    return errors


def validate_slice(spec: Object, path: str) -> Errors:
    errors: Errors = []
    driver, pool, devices = spec.get("driver") or "", spec.get("pool") or {}, spec.get("devices") or []
    if not driver:
        errors.append(required(f"{path}.driver"))
    else:
        errors += each(f"{path}.driver", driver, names.dns1123_subdomain(driver))
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
        detail = f"must have at most {MAX_DEVICES} items"
        return [*errors, FieldError(f"{path}.devices", "Too many", detail, len(devices))]
    seen: set[str] = set()
    for index, device in enumerate(devices):
        errors += _name(device.get("name") or "", seen, f"{path}.devices[{index}].name")
    return errors


def _name(name: str, seen: set[str], path: str) -> Errors:
    if not name:
        return [required(path)]
    if name in seen:
        return [duplicate(path, name)]
    seen.add(name)
    return each(path, name, names.dns1123_label(name))
