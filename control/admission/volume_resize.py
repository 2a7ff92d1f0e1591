"""PersistentVolumeClaimResize: a bound claim grows only where its storage class allows it."""

from __future__ import annotations

from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from control.registry.core.claim_spec import class_of
from kube import quantity
from kube.json_object import Object


class PersistentVolumeClaimResize(Plugin):
    name = "PersistentVolumeClaimResize"
    targets = ("persistentvolumeclaims",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("persistentvolumeclaims", "UPDATE")

    async def validate(self, attributes: Attributes) -> None:
        new, old = attributes.obj or {}, attributes.old or {}
        if _requested(new) <= _requested(old):
            return
        if old.get("status", {}).get("phase") != "Bound":
            raise refuse(attributes, "Only bound persistent volume claims can be expanded")
        name = class_of(old)
        known = await find(self._lookup, "storageclasses.storage.k8s.io", "", name) if name else None
        storage_class = known if class_of(new) == name else None
        if storage_class is None or not storage_class.get("allowVolumeExpansion"):
            raise refuse(
                attributes,
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize",
            )


def _requested(claim: Object) -> float:
    requests = (claim.get("spec", {}).get("resources") or {}).get("requests") or {}
    return float(quantity.parse(requests.get("storage", 0)))
