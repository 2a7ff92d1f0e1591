"""TaintNodesByCondition: a new node takes no pods until the node lifecycle controller has seen it ready.

Without it the scheduler could use a node between its registration and its first condition.
"""

from __future__ import annotations

from control.interfaces.admission import Attributes, Plugin

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class TaintNodesByCondition(Plugin):
    name = "TaintNodesByCondition"
    targets = ("nodes",)

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("nodes", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(t.get("key") == NOT_READY["key"] and t.get("effect") == NOT_READY["effect"] for t in taints):
            spec["taints"] = [*taints, dict(NOT_READY)]
            attributes.changed(self.name, "spec.taints")
