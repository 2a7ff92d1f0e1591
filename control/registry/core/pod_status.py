"""What a pod's status may become: addresses that are addresses, and containers that have ended for good stay so."""

from __future__ import annotations

from control.registry.checks import Errors, each, ip, unchanged
from control.registry.strategy import Object
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_ONE_A_FAMILY = "may specify no more than one IP for each IP family"


def validate_status(obj: Object, old: Object) -> Errors:
    """Check an update of a pod's status."""
    spec, status, before = obj.get("spec") or {}, obj.get("status") or {}, old.get("status") or {}
    errors: Errors = []
    for index, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type") or ""
        if kind not in _SYSTEM_CONDITIONS:
            # Upstream names metadata as the place.
            errors += each(f"metadata.conditions[{index}].Type", kind, names.qualified_name(kind))
    if (spec.get("nodeName") or "") != ((old.get("spec") or {}).get("nodeName") or ""):
        errors.append(forbidden_field("status.nodeName", "may not be changed directly"))
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName"):
        errors += each("status.nominatedNodeName", nominated, names.dns1123_subdomain(nominated))
    if before.get("qosClass"):
        errors += unchanged(status, before, "qosClass", "status.qosClass")
    errors += _transitions(status, before, old.get("spec") or {})
    errors += _claims(status.get("resourceClaimStatuses") or [], spec)
    errors += _addresses(status.get("podIPs") or [], "status.podIPs")
    hosts = status.get("hostIPs") or []
    if hosts and hosts[0].get("ip") != status.get("hostIP"):
        errors.append(invalid_value("status.hostIPs[0].ip", hosts[0].get("ip"), "must be equal to `hostIP`"))
    return errors + _addresses(hosts, "status.hostIPs")


def _transitions(status: Object, before: Object, spec: Object) -> Errors:
    """Refuse a container that runs again although it never may."""
    errors: Errors = []
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    rules = [rule for container in every for rule in container.get("restartPolicyRules") or ()]
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        return errors  # any of them may, for the end of another (KEP-5532)
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
                errors.append(forbidden_field(f"status.{field}[{index}].state", detail))
    return errors


def _claims(statuses: list[Object], spec: Object) -> Errors:
    errors: Errors = []
    known, seen = {c.get("name") for c in spec.get("resourceClaims") or ()}, set()
    for index, status in enumerate(statuses):
        path, name = f"status.resourceClaimStatuses[{index}].name", status.get("name") or ""
        if name not in known:
            errors.append(invalid_value(path, name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            errors.append(duplicate(path, name))
        seen.add(name)
        claim = status.get("resourceClaimName")
        if claim is not None:
            errors += each(path, claim, names.dns1123_subdomain(claim))
    return errors


def _addresses(found: list[Object], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, item in enumerate(found):
        address = item.get("ip") or ""
        errors += ip(address, f"{path}[{index}]")
        if address in seen:
            errors.append(duplicate(f"{path}[{index}]", item))
        seen.add(address)
    families = {":" in (item.get("ip") or "") for item in found}
    if len(found) > 1 and len(found) != len(families):
        errors.append(invalid_value(path, found, _ONE_A_FAMILY))
    return errors
