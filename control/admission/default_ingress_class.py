"""DefaultIngressClass: an ingress that names no class gets the one marked as default."""

from __future__ import annotations

from control.admission.lookup import Lookup
from control.admission.plugin import Attributes, Plugin

_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
_OLD_CLASS = "kubernetes.io/ingress.class"


class DefaultIngressClass(Plugin):
    name = "DefaultIngressClass"

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
        defaults = [
            c["metadata"]
            for c in self._lookup.list("ingressclasses.networking.k8s.io")
            if (c["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
        ]
        if defaults:
            defaults.sort(key=lambda m: str(m["name"]))
            defaults.sort(key=lambda m: str(m.get("creationTimestamp", "")), reverse=True)
            spec["ingressClassName"] = defaults[0]["name"]
