"""Checks of claims on devices: what they ask for, and what is written into their status."""

from __future__ import annotations

import msgspec

from control.registry.checks import Errors, each, one_of, required_name, unique
from control.registry.resource.selectors import validate_selectors
from control.registry.strategy import Object
from kube import names
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required
from kube.pod_claims import MOST_CONSUMERS

MAX_REQUESTS, MAX_ALTERNATIVES, MAX_CONFIGS = 32, 8, 32
MAX_PARAMETERS = 10 * 1024


def validate_claim(spec: Object, path: str) -> Errors:
    """Check a claim's spec, its own or that of a template."""
    requests, where = (spec.get("devices") or {}).get("requests") or [], f"{path}.devices.requests"
    if len(requests) > MAX_REQUESTS:
        return [FieldError(where, "Too many", f"must have at most {MAX_REQUESTS} items", len(requests))]
    errors: Errors = []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        errors += request_name(request.get("name") or "", seen, f"{where}[{index}].name")
        errors += _request(request, f"{where}[{index}]")
    devices, known = spec.get("devices") or {}, _names(requests)
    for index, constraint in enumerate(devices.get("constraints") or []):
        errors += _constraint(constraint, known, f"{path}.devices.constraints[{index}]")
    for index, config in enumerate(devices.get("config") or []):
        place = f"{path}.devices.config[{index}]"
        errors += _named(config, known, place) + validate_configuration(config, place)
    return errors


def _names(requests: list[Object]) -> set[str]:
    """Return what constraints and configurations may name: requests, and alternatives as `request/alternative`."""
    found = {request.get("name") or "" for request in requests}
    for request in requests:
        found |= {f"{request.get('name')}/{part.get('name')}" for part in request.get("firstAvailable") or []}
    return found


def _named(part: Object, known: set[str], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, name in enumerate(part.get("requests") or []):
        where = f"{path}.requests[{index}]"
        if name in seen:
            errors.append(duplicate(where, name))
        elif name not in known:
            detail = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            errors.append(invalid_value(where, name, detail))
        seen.add(name)
    return errors


def _constraint(constraint: Object, known: set[str], path: str) -> Errors:
    errors = _named(constraint, known, path)
    given = [key for key in ("matchAttribute", "distinctAttribute") if constraint.get(key)]
    if not given:
        return [*errors, required(f"{path}.matchAttribute")]
    if len(given) > 1:
        detail = "only one of `matchAttribute` and `distinctAttribute` may be set"
        return [*errors, invalid_value(path, constraint, detail)]
    attribute, where = constraint[given[0]], f"{path}.{given[0]}"
    domain, slash, name = attribute.partition("/")
    if not slash:
        return [*errors, invalid_value(where, attribute, "must include a domain")]
    return errors + each(where, domain, names.dns1123_subdomain(domain)) + ([] if name else [required(where)])


def validate_configuration(config: Object, path: str) -> Errors:
    """Validate configuration for drivers: the driver's name, and that it is an object."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    parameters = opaque.get("parameters")
    errors = required_name(f"{path}.opaque.driver", opaque.get("driver"), names.dns1123_subdomain)
    if parameters is None:
        errors.append(required(f"{path}.opaque.parameters"))
    elif not isinstance(parameters, dict):
        errors.append(invalid_value(f"{path}.opaque.parameters", "<value omitted>", "parsing as JSON object failed"))
    elif len(msgspec.json.encode(parameters)) > MAX_PARAMETERS:
        detail = f"may not be more than {MAX_PARAMETERS} bytes"
        errors.append(FieldError(f"{path}.opaque.parameters", "Too long", detail, ""))
    return errors


def validate_claim_status(status: Object, spec: Object) -> Errors:
    """Check who a claim is reserved for, and that what is allocated was asked for."""
    errors: Errors = []
    reserved, allocation = status.get("reservedFor") or [], status.get("allocation")
    if len(reserved) > MOST_CONSUMERS:
        detail = f"must have at most {MOST_CONSUMERS} items"
        errors.append(FieldError("status.reservedFor", "Too many", detail, len(reserved)))
    if reserved and allocation is None:
        errors.append(forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set"))
    seen: set[str] = set()
    for index, consumer in enumerate(reserved):
        where = f"status.reservedFor[{index}]"
        errors += [required(f"{where}.{key}") for key in ("resource", "name", "uid") if not consumer.get(key)]
        errors += unique(f"{where}.uid", consumer.get("uid") or "", seen)
    errors += _device_states(status)
    if allocation is None:
        return errors
    known = _names((spec.get("devices") or {}).get("requests") or [])
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or []):
        where = f"status.allocation.devices.results[{index}]"
        if (name := result.get("request") or "") not in known:
            errors.append(invalid_value(f"{where}.request", name, "must be the name of a request in the claim"))
        errors += [required(f"{where}.{key}") for key in ("driver", "pool", "device") if not result.get(key)]
    return errors


def _device_states(status: Object) -> Errors:
    """Check that the state of devices is said of allocated ones, and once of each."""
    errors: Errors = []
    allocated, seen = _allocated(status), set[tuple[str, ...]]()
    for index, state in enumerate(status.get("devices") or []):
        where, device = f"status.devices[{index}]", _device(state)
        errors += [required(f"{where}.{key}") for key in ("driver", "pool", "device") if not state.get(key)]
        shown = "/".join(filter(None, device))
        if device not in allocated:
            errors.append(invalid_value(where, shown, "must be an allocated device in the claim"))
        if device in seen:
            errors.append(duplicate(where, shown))
        seen.add(device)
    return errors


def drop_deallocated(status: Object, old: Object) -> None:
    """Take out of a claim's status the state of devices that it had and has no more."""
    gone = _allocated(old) - _allocated(status)
    states = status.pop("devices", None) or []
    if kept := [state for state in states if _device(state) not in gone]:
        status["devices"] = kept


def _allocated(status: Object) -> set[tuple[str, ...]]:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return {_device(result) for result in results}


def _device(found: Object) -> tuple[str, ...]:
    return tuple(found.get(part) or "" for part in ("driver", "pool", "device", "shareID"))


def asks_for_admin_access(spec: Object) -> list[str]:
    """Return the paths, below `spec`, of requests for administrators' access."""
    requests = (spec.get("devices") or {}).get("requests") or []
    return [
        f"devices.requests[{index}].exactly.adminAccess"
        for index, request in enumerate(requests)
        if (request.get("exactly") or {}).get("adminAccess")
    ]


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
        errors += request_name(alternative.get("name") or "", seen, f"{where}[{index}].name")
        errors += _wanted(alternative, f"{where}[{index}]")
    return errors


def _wanted(request: Object, path: str) -> Errors:
    mode, count = request.get("allocationMode"), request.get("count")
    errors = required_name(f"{path}.deviceClassName", request.get("deviceClassName"), names.dns1123_subdomain)
    errors += one_of(mode, ("All", "ExactCount"), f"{path}.allocationMode")
    if mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        errors.append(invalid_value(f"{path}.count", count, detail))
    elif mode == "ExactCount" and (count or 0) <= 0:
        errors.append(invalid_value(f"{path}.count", count, "must be greater than zero"))
    errors += validate_selectors(request.get("selectors") or [], f"{path}.selectors")
    for index, toleration in enumerate(request.get("tolerations") or []):
        errors += _toleration(toleration, f"{path}.tolerations[{index}]")
    return errors


def _toleration(toleration: Object, path: str) -> Errors:
    operator, key = toleration.get("operator") or "Equal", toleration.get("key")
    errors = one_of(operator, ("Equal", "Exists"), f"{path}.operator")
    if operator == "Equal" and not key:
        errors.append(required(f"{path}.key", "must be set when operator is Equal"))
    if operator == "Exists" and toleration.get("value"):
        detail = "must be empty for operator `Exists`"
        errors.append(invalid_value(f"{path}.value", toleration["value"], detail))
    effect = toleration.get("effect")
    return errors + one_of(effect, ("NoSchedule", "NoExecute"), f"{path}.effect", needed=False)


def request_name(name: str, seen: set[str], path: str) -> Errors:
    if not name:
        return [required(path)]
    if name in seen:
        return [duplicate(path, name)]
    seen.add(name)
    return each(path, name, names.dns1123_label(name))
