"""Usage that claims add to a ResourceQuota: storage of volume claims, devices of ResourceClaims, the claims' scope.

Upstream: pkg/quota/v1/evaluator/core, persistent_volume_claims.go and resource_claims.go.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from control.registry.core.claim_spec import class_of
from kube import quantity
from kube.json_object import Object

Usage = dict[str, Decimal]

DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_OF_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_MOST_DEVICES = 32
"""The most devices that one claim can be given."""


def volume_usage(claim: Object) -> Usage:
    """Return what a PersistentVolumeClaim uses: a place and storage, each also by its StorageClass."""
    spec, found = claim.get("spec", {}), {"persistentvolumeclaims": Decimal(1)}
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is not None:
        # A volume that was grown before the claim was made smaller again still has its size.
        allocated = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage", 0)
        storage = max(quantity.parse(asked), quantity.parse(allocated))
        found["requests.storage"] = storage.to_integral_value(ROUND_CEILING)
    if storage_class := class_of(claim):
        found |= {f"{storage_class}{_OF_STORAGE_CLASS}{name}": value for name, value in found.items()}
    return found


def device_usage(claim: Object) -> Usage:
    """Return what a ResourceClaim uses in the worst case: devices by DeviceClass."""
    found: Usage = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        worst: Usage = {}
        # One of several alternatives is chosen later, so each class is charged for its dearest one.
        for wanted in request.get("firstAvailable") or [request.get("exactly") or {}]:
            if name := wanted.get("deviceClassName"):
                key = f"{name}{DEVICES_OF_CLASS}"
                worst[key] = max(worst.get(key, Decimal(0)), _devices(wanted))
        for key, number in worst.items():
            found[key] = found.get(key, Decimal(0)) + number
    return found


def _devices(request: Object) -> Decimal:
    mode = request.get("allocationMode") or "ExactCount"
    if mode == "All":
        return Decimal(_MOST_DEVICES)
    return Decimal(request.get("count") or 1) if mode == "ExactCount" else Decimal(0)


def attributes_classes(claim: Object) -> set[str]:
    """Return the VolumeAttributesClasses that a claim requests, has, or is being changed to."""
    status = claim.get("status") or {}
    names = (
        (claim.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {name for name in names if name}


def volume_in_scope(term: Object, claim: Object) -> bool:
    """Return whether a PersistentVolumeClaim is within a scope; VolumeAttributesClass is the only one for claims."""
    if term.get("scopeName") != "VolumeAttributesClass":
        return False
    operator, values, names = term.get("operator", "Exists"), term.get("values") or (), attributes_classes(claim)
    if operator == "In":
        return any(name in values for name in names)
    if operator == "NotIn":
        return not names or any(name not in values for name in names)
    return bool(names) is bool(operator == "Exists")
