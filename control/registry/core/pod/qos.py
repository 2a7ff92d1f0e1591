"""The quality of service class of a pod, from its containers' requests and limits of cpu and memory.

Guaranteed: every container has limits for both and equal requests. BestEffort: no container has requests or limits for
either. Burstable: all others (pkg/apis/core/v1/helper/qos). Pod-level resources, if set, replace those of the containers.
"""

from __future__ import annotations

from kube.json_object import Object
from kube.quantity import parse

_COUNTED = ("cpu", "memory")


def qos_class(spec: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort for a pod spec."""
    pod_level = spec.get("resources") or {}
    if pod_level.get("requests") or pod_level.get("limits"):
        parts = [pod_level]
    else:
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        parts = [c.get("resources") or {} for c in containers]
    totals: dict[str, dict[str, object]] = {"requests": {}, "limits": {}}
    guaranteed = bool(parts)
    for part in parts:
        found = {
            side: {k: q for k in _COUNTED if (q := parse((part.get(side) or {}).get(k, 0))) > 0} for side in totals
        }
        for side in totals:
            totals[side].update(found[side])
        limits = found["limits"]
        requests = {**limits, **found["requests"]}
        if len(limits) < len(_COUNTED) or requests != limits:
            guaranteed = False
    if not totals["requests"] and not totals["limits"]:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
