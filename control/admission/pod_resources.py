"""Sums a pod's resources: containers added up, init containers at their highest, plus overhead.

Sidecars (init containers with restartPolicy Always) run beside what starts after them, so they count to both sums
(KEP-753). Requests and limits stated for the pod itself (KEP-2837) stand for the containers' sum.
"""

from __future__ import annotations

from decimal import Decimal

from kube import quantity
from kube.json_object import Object

_BYTES = frozenset({"memory", "storage", "ephemeral-storage"})


def pod_totals(spec: Object) -> tuple[dict[str, str], dict[str, str]]:
    """Return a pod spec's requests and limits as quantities by resource name."""
    requests, limits = _total(spec, "requests"), _total(spec, "limits")
    for name, value in (spec.get("overhead") or {}).items():
        requests[name] = requests.get(name, Decimal(0)) + quantity.parse(value)
        if limits.get(name):
            limits[name] += quantity.parse(value)
    return _render(requests), _render(limits)


def _total(spec: Object, kind: str) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        _add(total, _of(container, kind))
    beside: dict[str, Decimal] = {}
    highest: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        mine = _of(container, kind)
        if container.get("restartPolicy") == "Always":
            _add(total, mine)
            _add(beside, mine)
            continue
        # Of what it does not name itself the sidecars have no more now than in the end, which is in the total.
        for name, value in mine.items():
            together = value + beside.get(name, Decimal(0))
            highest[name] = max(highest.get(name, together), together)
    for name, value in highest.items():
        total[name] = max(total.get(name, value), value)
    return total | _of(spec, kind)


def _of(holder: Object, kind: str) -> dict[str, Decimal]:
    values = (holder.get("resources") or {}).get(kind) or {}
    return {name: quantity.parse(value) for name, value in values.items()}


def _add(total: dict[str, Decimal], more: dict[str, Decimal]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Decimal(0)) + value


def _render(values: dict[str, Decimal]) -> dict[str, str]:
    return {name: quantity.render(value, family(name)) for name, value in values.items()}


def family(name: str) -> str:
    """Return the suffix family a resource is shown in: bytes in Ki, Mi, Gi, the rest in m, k, M."""
    plain = name.rpartition("/")[2].removeprefix("requests.").removeprefix("limits.")
    return "binary" if plain in _BYTES or plain.startswith("hugepages-") else "decimal"
