"""Checks of resources that a pod has as a whole (spec.resources, KEP-2837): they hold what its containers ask for."""

from __future__ import annotations

from decimal import Decimal

from control.registry.checks import Errors
from control.registry.core.resources import validate_requirements
from control.registry.strategy import Object
from kube.errors import forbidden_field, invalid_value
from kube.quantity import Quantity, canonical, parse, render


def validate_pod_resources(spec: Object, path: str) -> Errors:
    resources = spec.get("resources")
    if not resources:
        return []
    errors: Errors = []
    if resources.get("claims"):
        errors.append(forbidden_field(f"{path}.claims", "claims cannot be set for Resources at pod-level"))
    errors += validate_requirements(resources, path, pod_level=True)
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, asked in requested_together(spec).items():
        if name in ("cpu", "memory") and asked > parse(requests.get(name, 0)):
            shown = render(asked, "binary" if name == "memory" else "decimal")
            detail = f"must be greater than or equal to aggregate container requests of {shown}"
            errors.append(invalid_value(f"{path}.requests[{name}]", canonical(requests.get(name, 0)), detail))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and parse(limit) > parse(limits[name]):
                where = f"{path}.containers[{index}][{name}].limits"
                detail = f"must be less than or equal to pod limits of {canonical(limits[name])}"
                errors.append(invalid_value(where, canonical(limit), detail))
    return errors


def requested_together(spec: Object) -> dict[str, Decimal]:
    """Return what a pod's containers ask for at the most demanding moment of its life."""
    running: dict[str, Decimal] = {}
    starting: dict[str, Decimal] = {}
    sidecars: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        _add(running, _requests(container))
    for container in spec.get("initContainers") or ():
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(running, asked)
            _add(sidecars, asked)
            asked = {}
        # An init container runs beside the sidecars that started before it.
        for name in sidecars.keys() | asked.keys():
            together = sidecars.get(name, Decimal(0)) + parse(asked.get(name, 0))
            starting[name] = max(starting.get(name, Decimal(0)), together)
    return {
        name: max(running.get(name, Decimal(0)), starting.get(name, Decimal(0)))
        for name in running.keys() | starting.keys()
    }


def _requests(container: Object) -> dict[str, Quantity]:
    found: dict[str, Quantity] = (container.get("resources") or {}).get("requests") or {}
    return found


def _add(total: dict[str, Decimal], more: dict[str, Quantity]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + parse(amount)
