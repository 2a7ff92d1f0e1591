"""Taints of devices: filters those that a request does not tolerate (upstream: resourceclaim.ToleratesTaint)."""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import resource_v1

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"


def tolerates(toleration: resource_v1.DeviceToleration, taint: resource_v1.DeviceTaint) -> bool:
    """True if one toleration covers one taint; no key means every key, no effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")


class DeviceTolerations:
    """The tolerations of a request by key, effect and value: a request may have thousands, and is compared with each device."""

    def __init__(self, tolerations: Sequence[resource_v1.DeviceToleration] = ()) -> None:
        self.all = tuple(tolerations)
        self._exists = {(one.key or "", one.effect or "") for one in tolerations if one.operator == "Exists"}
        self._equal = {
            (one.key, one.effect or "", one.value or "") for one in tolerations if one.key and one.operator != "Exists"
        }

    def tolerate(self, taint: resource_v1.DeviceTaint) -> bool:
        """Return whether one of the tolerations covers a taint."""
        return any(
            (key, effect) in self._exists or (key, effect, taint.value or "") in self._equal
            for key in (taint.key, "")
            for effect in (taint.effect, "")
        )

    def untolerated(self, taints: Sequence[resource_v1.DeviceTaint]) -> bool:
        """Return whether nothing tolerates one of the taints that keep pods away."""
        return any(taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not self.tolerate(taint) for taint in taints)
