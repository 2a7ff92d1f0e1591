"""ExtendedResourceToleration (off by default): adds a toleration of the taint with a device resource's name to pods that
request the resource.

Nodes with a rare resource are tainted by its name (effect NoSchedule), and pods that request it need not say so again.
"""

from __future__ import annotations

from control.interfaces.admission import Attributes, Plugin
from control.registry.core.resources import is_extended


class ExtendedResourceToleration(Plugin):
    name = "ExtendedResourceToleration"
    targets = ("pods",)

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE", "UPDATE")

    async def admit(self, attributes: Attributes) -> None:
        spec = (attributes.obj or {}).get("spec") or {}
        wanted = {
            name
            for part in ("containers", "initContainers")
            for container in spec.get(part) or ()
            for name in (container.get("resources") or {}).get("requests") or ()
            if is_extended(name)
        }
        fresh = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in sorted(wanted)]
        present = spec.get("tolerations") or []
        there = {frozenset(each.items()) for each in present}
        missing = [each for each in fresh if frozenset(each.items()) not in there]
        if missing:
            spec["tolerations"] = [*present, *missing]
            attributes.changed(self.name, "spec.tolerations")
