"""Priority: a pod's priority class is resolved into the number that the scheduler and the kubelet use.

A pod names a class, never the number. Without a name it gets the class marked globalDefault, else priority 0. The two
system classes exist always, even before their objects do.
"""

from __future__ import annotations

from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube.json_object import Object

TARGET = "priorityclasses.scheduling.k8s.io"
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PREEMPT = "PreemptLowerPriority"


class Priority(Plugin):
    name = "Priority"
    targets = ("pods", TARGET)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern(("pods", TARGET), "CREATE", "UPDATE")

    async def admit(self, attributes: Attributes) -> None:
        if attributes.resource.target != "pods" or attributes.obj is None:
            return
        spec = attributes.obj.setdefault("spec", {})
        if attributes.operation == "UPDATE":
            old = (attributes.old or {}).get("spec", {})
            for part in ("priority", "preemptionPolicy"):
                if spec.get(part) is None and old.get(part) is not None:
                    spec[part] = old[part]
            return
        value, policy = await self._resolve(attributes, spec)
        if spec.get("priority") is not None and spec["priority"] != value:
            raise refuse(
                attributes,
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name",
            )
        if spec.get("preemptionPolicy") is not None and spec["preemptionPolicy"] != policy:
            raise refuse(
                attributes,
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name",
            )
        for part in ("priority", "preemptionPolicy"):
            if spec.get(part) is None:
                attributes.changed(self.name, f"spec.{part}")
        spec["priority"], spec["preemptionPolicy"] = value, policy

    async def _resolve(self, attributes: Attributes, spec: Object) -> tuple[int, str]:
        name = spec.get("priorityClassName")
        if not name:
            default = self._default()
            if default is None:
                return 0, _PREEMPT
            spec["priorityClassName"] = default["metadata"]["name"]
            attributes.changed(self.name, "spec.priorityClassName")
            return default.get("value", 0), default.get("preemptionPolicy") or _PREEMPT
        found = await find(self._lookup, TARGET, "", name)
        if found is not None:
            return found.get("value", 0), found.get("preemptionPolicy") or _PREEMPT
        if name in SYSTEM_CLASSES:
            return SYSTEM_CLASSES[name], _PREEMPT
        raise refuse(attributes, f"no PriorityClass with name {name} was found")

    def _default(self) -> Object | None:
        """Return the global default; where a race made two, the one with the lower value."""
        defaults = [c for c in self._lookup.list(TARGET) if c.get("globalDefault")]
        return min(defaults, key=lambda c: int(c.get("value", 0))) if defaults else None

    async def validate(self, attributes: Attributes) -> None:
        if attributes.resource.target != TARGET:
            return
        obj = attributes.obj
        if obj is None or not obj.get("globalDefault"):
            return
        default = self._default()
        if default is not None and default["metadata"]["name"] != obj["metadata"].get("name"):
            name = default["metadata"]["name"]
            raise refuse(attributes, f"PriorityClass {name} is already marked as default. Only one default can exist")
