"""Checks of the slices in which drivers offer devices."""

from __future__ import annotations

from control.registry.checks import Errors, at_most, each
from control.registry.core.pod.volume_sources import driver_name
from control.registry.resource.devices import LISTS, repeated_keys, validate_counters, validate_device, validate_places
from kube import names
from kube.errors import invalid_value, required, too_long, too_many
from kube.json_object import Object

MAX_DEVICES, MAX_ADVANCED_DEVICES, MAX_COUNTER_SETS, MAX_POOL_NAME = 128, 64, 8, 253
"""Advanced: some devices of the slice have taints, counters or lists of values."""
ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def validate_slice(spec: Object, path: str, old: Object | None = None) -> Errors:
    """Check a slice; `old` is the stored one."""
    errors = driver_name(spec.get("driver") or "", f"{path}.driver") + _pool(spec.get("pool") or {}, f"{path}.pool")
    errors += _places(spec, path)
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and sets is not None:
        errors.append(invalid_value(path, "", "only one of `sharedCounters` or `devices` is allowed"))
    errors += _devices(devices or [], spec, old, f"{path}.devices")
    where = f"{path}.sharedCounters"
    errors += at_most(MAX_COUNTER_SETS, sets or [], where, lambda item, place: validate_counters(item, "name", place))
    return errors if len(sets or ()) > MAX_COUNTER_SETS else errors + repeated_keys(sets or [], "name", where)


def _pool(pool: Object, path: str) -> Errors:
    name, count, generation = pool.get("name") or "", pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    errors: Errors = [] if name else [required(f"{path}.name")]
    if len(name) > MAX_POOL_NAME:
        errors.append(too_long(f"{path}.name", MAX_POOL_NAME))
    for part in name.split("/") if name else ():
        errors += each(f"{path}.name", part, names.dns1123_subdomain(part))
    if count <= 0:
        errors.append(invalid_value(f"{path}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errors.append(invalid_value(f"{path}.generation", generation, "must be greater than or equal to zero"))
    return errors


def _places(spec: Object, path: str) -> Errors:
    errors, chosen = validate_places(spec, path, "must be either unset or set to a non-empty string")
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if spec.get("nodeSelector") is not None and len(terms) != 1:
        where = f"{path}.nodeSelector.nodeSelectorTerms"
        errors.append(invalid_value(where, terms, "must have exactly one node selector term"))
    each_device = spec.get("perDeviceNodeSelection")
    if each_device:
        chosen.append("`perDeviceNodeSelection`")
    elif each_device is not None:
        detail = "must be either unset or set to true"
        errors.append(invalid_value(f"{path}.perDeviceNodeSelection", each_device, detail))
    if not chosen:
        return [*errors, required(path, ONE_PLACE)]
    if len(chosen) > 1:
        errors.append(invalid_value(path, f"{{{', '.join(chosen)}}}", f"{ONE_PLACE}, but multiple fields are set"))
    return errors


def _devices(devices: list[Object], spec: Object, old: Object | None, path: str) -> Errors:
    most = MAX_ADVANCED_DEVICES if any(map(_is_advanced, devices)) else MAX_DEVICES
    if len(devices) > most:
        return [too_many(path, len(devices), most)]
    stored = {device.get("name") or "": device for device in (old or {}).get("devices") or ()}
    errors: Errors = []
    for index, device in enumerate(devices):
        before = stored.get(device.get("name") or "")
        errors += validate_device(
            device, before, chooses_nodes=bool(spec.get("perDeviceNodeSelection")), path=f"{path}[{index}]"
        )
    return errors + repeated_keys(devices, "name", path)


def _is_advanced(device: Object) -> bool:
    attributes = (device.get("attributes") or {}).values()
    lists = any(attribute.get(key) is not None for attribute in attributes for key in LISTS)
    return bool(lists or device.get("taints") or device.get("consumesCounters"))
