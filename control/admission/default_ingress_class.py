"""DefaultIngressClass: an ingress that names no class gets the one marked as default."""

from __future__ import annotations

from control.interfaces.admission import Attributes, Plugin
from control.interfaces.default_class import INGRESS_MARKS
from control.interfaces.lookup import Lookup, default_of

_OLD_CLASS = "kubernetes.io/ingress.class"


class DefaultIngressClass(Plugin):
    name = "DefaultIngressClass"
    targets = ("ingresses.networking.k8s.io",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("ingresses.networking.k8s.io", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        if spec.get("ingressClassName") is not None or _OLD_CLASS in (
            attributes.obj["metadata"].get("annotations") or {}
        ):
            return
        default = default_of(self._lookup, "ingressclasses.networking.k8s.io", INGRESS_MARKS)
        if default is not None:
            spec["ingressClassName"] = default
            attributes.changed(self.name, "spec.ingressClassName")
