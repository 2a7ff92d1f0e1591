"""Resources that a pod has as a whole (spec.resources, KEP-2837): their defaults, and checks against what its containers
request.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.registry.checks import Errors, FieldErrors
from control.registry.core.pod.claim_names import ClaimNames, validate_claims
from control.registry.core.resources import HUGE, validate_requirements
from kube.errors import forbidden_field, invalid_value
from kube.json_object import Object
from kube.quantity import Quantity, canonical, parse, total

_OVERCOMMITTED = ("cpu", "memory")


def default_pod_resources(spec: Object) -> None:
    """Fill in the resources of a pod as a whole, if it has some.

    A limit of huge pages is what the containers have together. A request is what the containers request together, or else the
    limit. Templates do not get these defaults (pkg/apis/core/v1/defaults.go).
    """
    resources = spec.get("resources")
    if not resources or not (resources.get("limits") or resources.get("requests")):
        return
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    for name, amount in together(spec, "limits").items():
        if name.startswith(HUGE) and name not in requests:
            limits.setdefault(name, canonical(amount))
    if not limits:
        return
    for name, amount in together(spec, "requests").items():
        if name in _OVERCOMMITTED:
            requests.setdefault(name, canonical(amount))
    for name, amount in limits.items():
        if name in _OVERCOMMITTED or name.startswith(HUGE):
            requests.setdefault(name, amount)
    resources["limits"] = limits
    if requests:
        resources["requests"] = requests


def validate_pod_resources(spec: Object, path: str) -> FieldErrors:
    """Check the resources of a pod spec at a path."""
    resources, path = spec["resources"], f"{path}.resources"
    if (spec.get("os") or {}).get("name") == "windows":
        yield forbidden_field(path, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        yield forbidden_field(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from validate_requirements(resources, path, pod_level=True)
    yield from validate_claims(resources.get("claims") or [], ClaimNames.of(spec), f"{path}.claims")
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    yield from _at_least(requests, together(spec, "requests"), f"{path}.requests", "requests")
    huge = {name: amount for name, amount in together(spec, "limits").items() if name.startswith(HUGE)}
    yield from _at_least(limits, huge, f"{path}.limits", "limits")
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and parse(limit) > parse(limits[name]):
                where = f"{path}.containers[{index}][{name}].limits"
                detail = f"must be less than or equal to pod limits of {canonical(limits[name])}"
                yield invalid_value(where, canonical(limit), detail)


def _at_least(given: Object, least: dict[str, Quantity], path: str, part: str) -> Errors:
    """Check that the pod has at least what its containers have together, of the resources that it names."""
    return [
        invalid_value(
            f"{path}[{name}]",
            canonical(given[name]),
            f"must be greater than or equal to aggregate container {part} of {canonical(amount)}",
        )
        for name, amount in least.items()
        if name in given and parse(amount) > parse(given[name])
    ]


def together(spec: Object, part: str) -> dict[str, Quantity]:
    """Return the requests or limits of a pod's containers at the most demanding moment of its life."""
    running: dict[str, Quantity] = {}
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(running, container, part)
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(running, container, part)
            _add(sidecars, container, part)
            continue
        # It runs beside the sidecars that started before it. What only they have is part of `running`.
        for name, amount in _amounts(container, part):
            _raise(starting, name, total([sidecars[name], amount]) if name in sidecars else amount)
    for name, amount in starting.items():
        _raise(running, name, amount)
    return running


def _add(sums: dict[str, Quantity], container: Object, part: str) -> None:
    for name, amount in _amounts(container, part):
        sums[name] = total([sums[name], amount]) if name in sums else amount


def _raise(most: dict[str, Quantity], name: str, amount: Quantity) -> None:
    if name not in most or parse(amount) > parse(most[name]):
        most[name] = amount


def _amounts(container: Object, part: str) -> Iterable[tuple[str, Quantity]]:
    return ((container.get("resources") or {}).get(part) or {}).items()
