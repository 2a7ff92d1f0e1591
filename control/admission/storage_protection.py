"""StorageObjectInUseProtection: volumes and claims carry a finalizer, so that they do not vanish under their users."""

from __future__ import annotations

from control.interfaces.admission import Attributes, Plugin

FINALIZERS = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
    "volumeattributesclasses.storage.k8s.io": "kubernetes.io/vac-protection",
}


class StorageObjectInUseProtection(Plugin):
    name = "StorageObjectInUseProtection"
    targets = tuple(FINALIZERS)

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern(FINALIZERS, "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        wanted = FINALIZERS[attributes.resource.target]
        present = attributes.obj["metadata"].get("finalizers") or []
        if wanted not in present:
            attributes.obj["metadata"]["finalizers"] = [*present, wanted]
            attributes.changed(self.name, "metadata.finalizers")
