"""DefaultStorageClass: a claim that names no class gets the default one; one that names "" stays without."""

from __future__ import annotations

from control.interfaces.admission import Attributes, Plugin
from control.interfaces.default_class import STORAGE_MARKS
from control.interfaces.lookup import Lookup, default_of
from kube.volume_binding import CLASS_ANNOTATION


class DefaultStorageClass(Plugin):
    name = "DefaultStorageClass"
    targets = ("persistentvolumeclaims",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("persistentvolumeclaims", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        annotations = attributes.obj["metadata"].get("annotations") or {}
        if spec.get("storageClassName") is not None or CLASS_ANNOTATION in annotations:
            return
        default = default_of(self._lookup, "storageclasses.storage.k8s.io", STORAGE_MARKS)
        if default is not None:
            spec["storageClassName"] = default
            attributes.changed(self.name, "spec.storageClassName")
