"""Meaning of the resource names of quotas: the objects that use a resource, and those that it counts. Pure."""

from __future__ import annotations

from control.admission.quota_claims import DEVICES_OF_CLASS

_BARE_COUNTS = {"configmaps", "secrets", "replicationcontrollers", "resourcequotas"}
"""Object counts that are named by the plural alone."""
_BY_CLASS = ".storageclass.storage.k8s.io/"
_WHOLE = {
    "pods": frozenset({"pods", "count/pods", "cpu", "memory", "ephemeral-storage"}),
    "services": frozenset({"services", "count/services", "services.loadbalancers", "services.nodeports"}),
    "persistentvolumeclaims": frozenset({"persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage"}),
    "resourceclaims.resource.k8s.io": frozenset({"count/resourceclaims.resource.k8s.io"}),
}
"""Resources that objects use more of than a place, by what uses them."""


def target_of(name: str) -> str:
    """Return what uses a quota's resource, where that is more than a count: pods, services, claims; else ""."""
    for target, names in _WHOLE.items():
        if name in names:
            return target
    if _BY_CLASS in name:
        return "persistentvolumeclaims"
    if name.endswith(DEVICES_OF_CLASS):
        return "resourceclaims.resource.k8s.io"
    return "pods" if name.startswith(("requests.", "limits.", "hugepages-")) else ""


def counted_by(name: str) -> tuple[str, str] | None:
    """Return (plural, group) of the objects that a quota name counts, None if it is not a plain count."""
    if target_of(name):
        return None
    if name in _BARE_COUNTS:
        return name, ""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return plural, group
    return None
