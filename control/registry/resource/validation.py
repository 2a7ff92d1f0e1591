"""Validates ResourceClaims: requests for devices, and the status."""

from __future__ import annotations

import msgspec

from control.registry.checks import Errors, FieldErrors, at_most, each, one_of, required_name, unique
from control.registry.resource.device_states import validate_device_states
from control.registry.resource.devices import binding_conditions, qualified_identifier
from control.registry.resource.selectors import validate_selectors
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required, too_long, too_many
from kube.json_object import Object
from kube.pod_claims import MOST_CONSUMERS

MAX_REQUESTS, MAX_ALTERNATIVES, MAX_CONSTRAINTS, MAX_CONFIGS, MAX_RESULTS = 32, 8, 32, 32, 32
MAX_PARAMETERS = 10 * 1024


def validate_claim(spec: Object, path: str) -> Errors:
    """Check a claim's spec, its own or that of a template."""
    devices, where = spec.get("devices") or {}, f"{path}.devices"
    requests = devices.get("requests") or []
    seen: set[str] = set()
    known = _names(requests[:MAX_REQUESTS])

    def request(item: Object, place: str) -> Errors:
        return request_name(item.get("name") or "", seen, place) + _request(item, place)

    def config(item: Object, place: str) -> Errors:
        return _named(item, known, place) + validate_configuration(item, place)

    errors = at_most(MAX_REQUESTS, requests, f"{where}.requests", request)
    constraints = devices.get("constraints") or []
    errors += at_most(
        MAX_CONSTRAINTS, constraints, f"{where}.constraints", lambda item, place: _constraint(item, known, place)
    )
    return errors + at_most(MAX_CONFIGS, devices.get("config") or [], f"{where}.config", config)


def _names(requests: list[Object]) -> set[str]:
    """Return the names for constraints and configurations: requests, and alternatives as `request/alternative`."""
    found = {request.get("name") or "" for request in requests}
    for request in requests:
        found |= {f"{request.get('name')}/{part.get('name')}" for part in request.get("firstAvailable") or []}
    return found


def _named(part: Object, known: set[str], path: str) -> Errors:
    errors: Errors = at_most(MAX_REQUESTS, part.get("requests") or [], f"{path}.requests")
    seen: set[str] = set()
    for index, name in enumerate(part.get("requests") or []) if not errors else ():
        where = f"{path}.requests[{index}]"
        if name in seen:
            errors.append(duplicate(where, name))
            continue
        for label in name.split("/")[:2]:
            errors += each(where, label, names.dns1123_label(label))
        if name not in known:
            detail = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            errors.append(invalid_value(where, name, detail))
        seen.add(name)
    return errors


def _constraint(constraint: Object, known: set[str], path: str) -> Errors:
    errors = _named(constraint, known, path)
    given = next((key for key in ("matchAttribute", "distinctAttribute") if constraint.get(key) is not None), "")
    if not given:
        detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        return [*errors, required(path, detail)]
    attribute, where = constraint[given], f"{path}.{given}"
    errors += qualified_identifier(attribute, where)
    if "/" not in attribute:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        errors.append(invalid_value(where, attribute, detail))
    return errors


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
        errors.append(too_long(f"{path}.opaque.parameters", MAX_PARAMETERS))
    return errors


def validate_claim_status(status: Object, spec: Object, old: Object) -> FieldErrors:
    """Check a claim's reservedFor, and that allocated devices were requested; `old` is the status as it was."""
    reserved, allocation = status.get("reservedFor") or [], status.get("allocation")
    if len(reserved) > MOST_CONSUMERS:
        yield too_many("status.reservedFor", len(reserved), MOST_CONSUMERS)
    if reserved and allocation is None:
        yield forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set")
    seen: set[str] = set()
    for index, consumer in enumerate(reserved):
        where = f"status.reservedFor[{index}]"
        yield from [required(f"{where}.{key}") for key in ("resource", "name", "uid") if not consumer.get(key)]
        yield from unique(f"{where}.uid", consumer.get("uid") or "", seen)
    yield from validate_device_states(status)
    if allocation is None:
        return
    known = _names((spec.get("devices") or {}).get("requests") or [])
    if old.get("allocation") is None and (wrong := _too_many_results(allocation.get("devices") or {})):
        yield from wrong
        return
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or []):
        where = f"status.allocation.devices.results[{index}]"
        if (name := result.get("request") or "") not in known:
            yield invalid_value(f"{where}.request", name, "must be the name of a request in the claim")
        yield from [required(f"{where}.{key}") for key in ("driver", "pool", "device") if not result.get(key)]


def _too_many_results(devices: Object) -> Errors:
    """Check the size of a new allocation: that of one that is stored does not change."""
    where, results = "status.allocation.devices", devices.get("results") or []
    errors = at_most(2 * MAX_CONFIGS, devices.get("config") or [], f"{where}.config")
    return errors + at_most(MAX_RESULTS, results, f"{where}.results", binding_conditions)


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
        return list(_wanted(exactly, f"{path}.exactly"))
    seen: set[str] = set()

    def alternative(item: Object, place: str) -> Errors:
        return [*request_name(item.get("name") or "", seen, place), *_wanted(item, place)]

    return at_most(MAX_ALTERNATIVES, alternatives, f"{path}.firstAvailable", alternative)


def _wanted(request: Object, path: str) -> FieldErrors:
    mode, count = request.get("allocationMode"), request.get("count")
    yield from required_name(f"{path}.deviceClassName", request.get("deviceClassName"), names.dns1123_subdomain)
    yield from one_of(mode, ("All", "ExactCount"), f"{path}.allocationMode")
    if mode == "All" and count:
        yield invalid_value(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and (count or 0) <= 0:
        yield invalid_value(f"{path}.count", count, "must be greater than zero")
    yield from validate_selectors(request.get("selectors") or [], f"{path}.selectors")
    for index, toleration in enumerate(request.get("tolerations") or []):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")


def _toleration(toleration: Object, path: str) -> Errors:
    operator, key = toleration.get("operator") or "Equal", toleration.get("key") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect")
    errors = each(f"{path}.key", key, names.qualified_name(key)) if key else []
    errors += one_of(operator, ("Equal", "Exists"), f"{path}.operator")
    if operator == "Equal":
        errors += each(f"{path}.value", value, names.label_value(value))
    if operator == "Exists" and value:
        errors.append(invalid_value(f"{path}.value", value, "must be empty for operator `Exists`"))
    return errors + one_of(effect, ("NoExecute", "NoSchedule", "None"), f"{path}.effect", needed=False)


def request_name(name: str, seen: set[str], path: str) -> Errors:
    if not name:
        return [required(f"{path}.name")]
    if name in seen:
        return [duplicate(path, name)]
    seen.add(name)
    return each(f"{path}.name", name, names.dns1123_label(name))
