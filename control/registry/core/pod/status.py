"""Validates updates of a pod's status: addresses must be valid, and terminated containers stay terminated.

The metadata comes along with it, so annotations that the kubelet acts upon are held here as in an update of the pod. Statuses
of containers: the user of their processes, and the health of their devices. Upstream: validateContainerStatusUsers and
validateContainerStatusAllocatedResourcesStatus in pkg/apis/core/validation.
"""

from __future__ import annotations

from control.registry.changes import IMMUTABLE
from control.registry.checks import Errors, FieldErrors, each, unique
from control.registry.core.pod.annotations import validate_annotation_changes, validate_annotations
from control.registry.core.pod.security import MAX_ID
from control.registry.field_values import values_in
from control.registry.ip_checks import ip, ip_warnings, one_ip_a_family
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, not_supported, required, too_long
from kube.json_object import Object

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_MAPPING = ("containerName", "resourceName", "requestName")


def validate_status(obj: Object, old: Object) -> Errors:
    """Check an update of a pod's status."""
    spec, status, before = obj.get("spec") or {}, obj.get("status") or {}, old.get("status") or {}
    annotations, annotated = ((o.get("metadata") or {}).get("annotations") or {} for o in (obj, old))
    errors = validate_annotation_changes(annotations, annotated)
    errors += validate_annotations(annotations, spec, "metadata.annotations")
    for index, condition in enumerate(status.get("conditions") or ()):
        where, kind = f"status.conditions[{index}]", condition.get("type") or ""
        errors += _generation(condition, where)
        if kind not in _SYSTEM_CONDITIONS:
            errors += each(f"{where}.Type", kind, names.qualified_name(kind))
    if (spec.get("nodeName") or "") != ((old.get("spec") or {}).get("nodeName") or ""):
        errors.append(forbidden_field("status.nodeName", "may not be changed directly"))
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName"):
        errors += each("status.nominatedNodeName", nominated, names.dns1123_subdomain(nominated))
        if (old.get("spec") or {}).get("nodeName"):
            detail = "may not be set on pods that are already bound to a node"
            errors.append(forbidden_field("status.nominatedNodeName", detail))
    errors += _generation(status, "status")
    if before.get("qosClass") and status.get("qosClass") != before["qosClass"]:
        errors.append(invalid_value("status.qosClass", status.get("qosClass"), IMMUTABLE))
    errors += _transitions(status, before, old.get("spec") or {})
    errors += _claims(status.get("resourceClaimStatuses") or [], spec)
    if status.get("extendedResourceClaimStatus") is not None:
        errors += _extended_claim(status["extendedResourceClaimStatus"], spec)
    errors += _addresses(obj, old, "podIPs")
    hosts = status.get("hostIPs") or []
    if hosts and hosts[0].get("ip") != status.get("hostIP"):
        errors.append(invalid_value("status.hostIPs[0].ip", hosts[0].get("ip"), "must be equal to `hostIP`"))
    return [*errors, *_addresses(obj, old, "hostIPs"), *validate_container_statuses(status, spec)]


def _generation(found: Object, path: str) -> Errors:
    generation = found.get("observedGeneration")
    if generation is None or generation >= 0:
        return []
    return [invalid_value(f"{path}.observedGeneration", generation, "must be a non-negative integer")]


def status_warnings(obj: Object) -> list[str]:
    """Warn of addresses that are not in the canonical form."""
    return list(ip_warnings(obj, "status.podIPs[*].ip", "status.hostIPs[*].ip"))


def _transitions(status: Object, before: Object, spec: Object) -> FieldErrors:
    """Refuse a container that runs again although it never may."""
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    rules = [rule for container in every for rule in container.get("restartPolicyRules") or ()]
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        return
    for kind, field in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
        ("ephemeralContainers", "ephemeralContainerStatuses"),
    ):
        policy = "Never" if kind == "ephemeralContainers" else spec.get("restartPolicy")
        if policy == "Always":
            continue
        own = {c.get("name") for c in spec.get(kind) or () if c.get("restartPolicy")}
        states = {s.get("name"): s.get("state") or {} for s in status.get(field) or ()}
        for index, was in enumerate(before.get(field) or ()):
            ended, name = (was.get("state") or {}).get("terminated"), was.get("name")
            if ended is None or name in own or (ended.get("exitCode") and policy == "OnFailure"):
                continue
            if name in states and states[name].get("terminated") is None:
                detail = "may not be transitioned to non-terminated state"
                yield forbidden_field(f"status.{field}[{index}].state", detail)


def _claims(statuses: list[Object], spec: Object) -> FieldErrors:
    known, seen = {c.get("name") for c in spec.get("resourceClaims") or ()}, set()
    for index, status in enumerate(statuses):
        path, name = f"status.resourceClaimStatuses[{index}].name", status.get("name") or ""
        if name not in known:
            yield invalid_value(path, name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(path, name)
        seen.add(name)
        claim = status.get("resourceClaimName")
        if claim is not None:
            yield from each(path, claim, names.dns1123_subdomain(claim))


def _extended_claim(status: Object, spec: Object) -> Errors:
    path, mappings = "status.extendedResourceClaimStatus", status.get("requestMappings") or []
    errors: Errors = []
    if not mappings:
        errors.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    asked = {c.get("name"): (c.get("resources") or {}).get("requests") or {} for c in every}
    seen = set()
    for index, mapping in enumerate(mappings):
        where, key = f"{path}.requestMappings[{index}]", tuple(mapping.get(part) or "" for part in _MAPPING)
        if key[0] not in asked:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            errors.append(invalid_value(f"{where}.containerName", key[0], detail))
        elif key[1] not in asked[key[0]]:
            detail = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            errors.append(invalid_value(f"{where}.resourceName", key[1], detail))
        errors += each(f"{path}.requestName", key[2], names.dns1123_label(key[2]))
        if key in seen:
            errors += [duplicate(f"{where}.{part}", value) for part, value in zip(_MAPPING, key, strict=True)]
        seen.add(key)
    claim = status.get("resourceClaimName") or ""
    if not claim:
        return [*errors, required(f"{path}.resourceClaimName")]
    return errors + each(f"{path}.resourceClaimName", claim, names.dns1123_subdomain(claim))


def _addresses(obj: Object, old: Object, field: str) -> Errors:
    """Check addresses of the status; stored ones may stay in their form."""
    path, kept = f"status.{field}", values_in(old, f"status.{field}[*].ip")
    found = [item.get("ip") or "" for item in (obj.get("status") or {}).get(field) or ()]
    errors = [error for index, address in enumerate(found) for error in ip(address, f"{path}[{index}]", kept)]
    return errors + one_ip_a_family(found, path, [{"IP": address} for address in found])


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
