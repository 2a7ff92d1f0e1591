"""Status of the devices that a ResourceClaim was allocated, which drivers report."""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, at_most, unique
from control.registry.field_values import field_value
from control.registry.ip_checks import interface_address
from kube.errors import duplicate, invalid_value, required, too_long
from kube.json_object import Object

MAX_CONDITIONS, MAX_ADDRESSES = 8, 16
MAX_INTERFACE_NAME, MAX_HARDWARE_ADDRESS = 256, 128
"""Bytes."""


def validate_device_states(status: Object) -> FieldErrors:
    """Check that status.devices contains only allocated devices, each once."""
    allocated, seen = _allocated(status), set[tuple[str, ...]]()
    for index, state in enumerate(status.get("devices") or []):
        where, device = f"status.devices[{index}]", _device(state)
        yield from [required(f"{where}.{key}") for key in ("driver", "pool", "device") if not state.get(key)]
        shown = "/".join(filter(None, device))
        if device not in allocated:
            yield invalid_value(where, shown, "must be an allocated device in the claim")
        if device in seen:
            yield duplicate(where, shown)
        seen.add(device)
        yield from at_most(MAX_CONDITIONS, state.get("conditions") or [], f"{where}.conditions")
        yield from _network_data(state.get("networkData") or {}, f"{where}.networkData")


def _network_data(network: Object, path: str) -> Errors:
    """Check what a driver reports about a device that is a network interface."""
    errors: Errors = []
    for field, most in (("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)):
        if len((network.get(field) or "").encode()) > most:
            errors.append(too_long(f"{path}.{field}", most))
    addresses = network.get("ips") or []
    wrong = at_most(MAX_ADDRESSES, addresses, f"{path}.ips", interface_address)
    if len(addresses) > MAX_ADDRESSES:
        return errors + wrong
    seen: set[str] = set()
    repeated = [error for index, text in enumerate(addresses) for error in unique(f"{path}.ips[{index}]", text, seen)]
    return errors + wrong + repeated


def drop_deallocated(status: Object, old: Object) -> None:
    """Remove devices from a claim's status.devices that are no longer allocated."""
    gone = _allocated(old) - _allocated(status)
    states = status.pop("devices", None) or []
    if kept := [state for state in states if _device(state) not in gone]:
        status["devices"] = kept


def _allocated(status: Object) -> set[tuple[str, ...]]:
    results = field_value(status, "allocation.devices.results") or []
    return {_device(result) for result in results}


def _device(found: Object) -> tuple[str, ...]:
    return tuple(found.get(part) or "" for part in ("driver", "pool", "device", "shareID"))
