"""Taints of devices: which of them keep a request away (upstream: resourceclaim.ToleratesTaint)."""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import resource_v1

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"


def tolerates(toleration: resource_v1.DeviceToleration, taint: resource_v1.DeviceTaint) -> bool:
    """True where one toleration covers one taint; no key means every key, no effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")


def untolerated(taints: Sequence[resource_v1.DeviceTaint], tolerations: Sequence[resource_v1.DeviceToleration]) -> bool:
    """True where a taint that keeps pods away is tolerated by nothing."""
    return any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any(tolerates(t, taint) for t in tolerations)
        for taint in taints
    )
