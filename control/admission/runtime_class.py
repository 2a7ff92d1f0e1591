"""RuntimeClass: a pod of a runtime class carries its overhead, and its node selector and tolerations."""

from __future__ import annotations

from control.admission.lookup import Lookup, find
from control.admission.plugin import Attributes, Plugin
from control.admission.refusal import refuse
from kube import quantity


class RuntimeClass(Plugin):
    name = "RuntimeClass"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        name = spec.get("runtimeClassName")
        if not name:
            if spec.get("overhead"):
                raise refuse(
                    attributes, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                )
            return
        runtime_class = await find(self._lookup, "runtimeclasses.node.k8s.io", "", name)
        if runtime_class is None:
            raise refuse(attributes, f'pod rejected: RuntimeClass "{name}" not found')
        overhead = (runtime_class.get("overhead") or {}).get("podFixed") or {}
        if spec.get("overhead") and _amounts(spec["overhead"]) != _amounts(overhead):
            raise refuse(attributes, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        if overhead:
            spec["overhead"] = dict(overhead)
        scheduling = runtime_class.get("scheduling") or {}
        selector = spec.get("nodeSelector") or {}
        for key, value in (scheduling.get("nodeSelector") or {}).items():
            if selector.get(key, value) != value:
                why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                raise refuse(attributes, f"{why}pod.spec.nodeSelector[{key}] = {selector[key]}")
        if scheduling.get("nodeSelector"):
            spec["nodeSelector"] = selector | scheduling["nodeSelector"]
        more = [t for t in scheduling.get("tolerations") or () if t not in (spec.get("tolerations") or ())]
        if more:
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *more]


def _amounts(resources: dict[str, quantity.Quantity]) -> dict[str, object]:
    return {name: quantity.parse(value) for name, value in resources.items()}
