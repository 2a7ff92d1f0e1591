"""Checks of the containers' part of a pod's status: the user of their processes, and the health of their devices.

Upstream: validateContainerStatusUsers and validateContainerStatusAllocatedResourcesStatus in pkg/apis/core/validation.
"""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, unique
from control.registry.core.pod.security import MAX_ID
from kube.errors import forbidden_field, invalid_value, not_supported, required, too_long
from kube.json_object import Object

_KINDS = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
)
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
MAX_MESSAGE = 1024


def validate_container_statuses(status: Object, spec: Object) -> FieldErrors:
    """Check the statuses of all containers of a pod."""
    windows = (spec.get("os") or {}).get("name") == "windows"
    for field, _ in _KINDS:
        for index, found in enumerate(status.get(field) or ()):
            yield from _validate_user(
                found.get("user") or {}, windows=windows, path=f"status.{field}[{index}].user.linux"
            )
    for field, kind in _KINDS:
        resources = {each.get("name"): _known(each.get("resources") or {}) for each in reversed(spec.get(kind) or [])}
        for index, found in enumerate(status.get(field) or ()):
            path, allocated = f"status.{field}[{index}].allocatedResourcesStatus", found.get("allocatedResourcesStatus")
            if kind:
                yield from _validate_allocated(allocated or [], resources.get(found.get("name")), path)
            elif allocated:
                yield forbidden_field(path, "must not be specified in container status")


def _validate_user(user: Object, *, windows: bool, path: str) -> Errors:
    linux = user.get("linux")
    if linux is None:
        return []
    if windows:
        return [forbidden_field(path, "cannot be set for a windows pod")]
    groups = enumerate(linux.get("supplementalGroups") or ())
    given = [("uid", linux.get("uid") or 0), ("gid", linux.get("gid") or 0)]
    given += [(f"supplementalGroups[{index}]", group) for index, group in groups]
    detail = f"must be between 0 and {MAX_ID}, inclusive"
    return [invalid_value(f"{path}.{key}", number, detail) for key, number in given if not 0 <= number <= MAX_ID]


def _known(resources: Object) -> tuple[set[str], set[str]]:
    """Return the names of a container's claims, as its status spells them, and those of its requests."""
    claims = resources.get("claims") or ()
    used = {f"claim:{c.get('name')}" + (f"/{c['request']}" if c.get("request") else "") for c in claims}
    return used, set(resources.get("requests") or ())


def _validate_allocated(allocated: list[Object], known: tuple[set[str], set[str]] | None, path: str) -> FieldErrors:
    """Check the statuses of allocated resources; `known` are those of the container, None if there is none."""
    for index, found in enumerate(allocated):
        where = f"{path}[{index}]"
        if known is not None:
            yield from _validate_name(found.get("name") or "", *known, f"{where}.name")
        yield from _validate_health(found.get("resources") or [], f"{where}.resources")


def _validate_name(name: str, claims: set[str], requests: set[str], path: str) -> Errors:
    if name.startswith("claim:"):
        known = claims
        detail = (
            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
            "'claim:<claimName>' if request is empty"
        )
    else:
        known, detail = requests, "must match one of the container's resource requests"
    return [] if name in known else [invalid_value(path, name, detail)]


def _validate_health(devices: list[Object], path: str) -> FieldErrors:
    seen: set[str] = set()
    for index, device in enumerate(devices):
        where, message = f"{path}[{index}]", device.get("message")
        if (health := device.get("health") or "") not in _HEALTH:
            yield not_supported(f"{where}.health", health, _HEALTH)
        if message == "":
            yield required(f"{where}.message", "must be non-empty if specified")
        elif message and len(message.encode()) > MAX_MESSAGE:
            yield too_long(f"{where}.message", MAX_MESSAGE)
        yield from unique(f"{where}.resourceID", device.get("resourceID") or "", seen)
