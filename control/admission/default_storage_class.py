"""DefaultStorageClass: a claim that names no class gets the default one; one that names "" stays without."""

from __future__ import annotations

from control.admission.lookup import Lookup
from control.admission.plugin import Attributes, Plugin

_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_BETA = "storageclass.beta.kubernetes.io/is-default-class"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


class DefaultStorageClass(Plugin):
    name = "DefaultStorageClass"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("persistentvolumeclaims", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        annotations = attributes.obj["metadata"].get("annotations") or {}
        if spec.get("storageClassName") is not None or _OLD_CLASS in annotations:
            return
        defaults = []
        for storage_class in self._lookup.list("storageclasses.storage.k8s.io"):
            marks = storage_class["metadata"].get("annotations") or {}
            if marks.get(_DEFAULT) == "true" or marks.get(_BETA) == "true":
                defaults.append(storage_class["metadata"])
        if defaults:  # the newest of several, by name where they are of the same second
            defaults.sort(key=lambda m: str(m["name"]))
            defaults.sort(key=lambda m: str(m.get("creationTimestamp", "")), reverse=True)
            spec["storageClassName"] = defaults[0]["name"]
