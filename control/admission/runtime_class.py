"""RuntimeClass: a pod of a runtime class carries its overhead, and its node selector and tolerations."""

from __future__ import annotations

from typing import Any

from control.admission.pod_toleration_restriction import merge
from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube import quantity


class RuntimeClass(Plugin):
    name = "RuntimeClass"
    targets = ("pods",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        runtime_class = await self._of(attributes)
        if runtime_class is None:
            return
        spec = attributes.obj["spec"]
        if overhead := _overhead(runtime_class):
            if spec.get("overhead"):
                _compare(attributes, overhead)
            spec["overhead"] = dict(overhead)
            attributes.changed(self.name, "spec.overhead")
        scheduling = runtime_class.get("scheduling") or {}
        selector = spec.get("nodeSelector") or {}
        for key, value in (scheduling.get("nodeSelector") or {}).items():
            if selector.get(key, value) != value:
                why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                raise refuse(attributes, f"{why}pod.spec.nodeSelector[{key}] = {selector[key]}")
        if scheduling.get("nodeSelector"):
            spec["nodeSelector"] = selector | scheduling["nodeSelector"]
            attributes.changed(self.name, "spec.nodeSelector")
        if scheduling.get("tolerations"):
            spec["tolerations"] = merge([*(spec.get("tolerations") or ()), *scheduling["tolerations"]])
            attributes.changed(self.name, "spec.tolerations")

    async def validate(self, attributes: Attributes) -> None:
        """Compare the overhead once more: other plugins and webhooks may have changed it."""
        assert attributes.obj is not None
        runtime_class = await self._of(attributes)
        overhead = _overhead(runtime_class) if runtime_class is not None else {}
        if overhead:
            _compare(attributes, overhead)
        elif (attributes.obj.get("spec") or {}).get("overhead"):
            detail = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise refuse(attributes, f"pod rejected: {detail}")

    async def _of(self, attributes: Attributes) -> dict[str, Any] | None:
        """Return the RuntimeClass of a pod; None if it names none."""
        name = ((attributes.obj or {}).get("spec") or {}).get("runtimeClassName")
        if not name:
            return None
        found = await find(self._lookup, "runtimeclasses.node.k8s.io", "", name)
        if found is None:
            raise refuse(attributes, f'pod rejected: RuntimeClass "{name}" not found')
        return found


def _overhead(runtime_class: dict[str, Any]) -> dict[str, quantity.Quantity]:
    return (runtime_class.get("overhead") or {}).get("podFixed") or {}


def _compare(attributes: Attributes, overhead: dict[str, quantity.Quantity]) -> None:
    given = ((attributes.obj or {}).get("spec") or {}).get("overhead") or {}
    if _amounts(given) != _amounts(overhead):
        raise refuse(attributes, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")


def _amounts(resources: dict[str, quantity.Quantity]) -> dict[str, object]:
    return {name: quantity.parse(value) for name, value in resources.items()}
