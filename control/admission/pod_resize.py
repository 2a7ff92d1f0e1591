"""PodResizeValidator: a pod on a node is not resized past what the node has, nor where resizing is not known.

Upstream's scheduler and kubelet would only defer such a resize for ever (KEP-1287).
"""

from __future__ import annotations

from control.admission.pod_resources import pod_totals
from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube import quantity


class PodResizeValidator(Plugin):
    name = "PodResizeValidator"
    targets = ("pods",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        resized = attributes.operation == "UPDATE" and attributes.subresource == "resize"
        return resized and attributes.resource.target == "pods"

    async def validate(self, attributes: Attributes) -> None:
        spec = (attributes.obj or {}).get("spec") or {}
        name = spec.get("nodeName")
        if not name or spec == ((attributes.old or {}).get("spec") or {}):
            return
        node = await find(self._lookup, "nodes", "", name)
        if node is None:
            raise refuse(attributes, f'node "{name}" not found')
        has = (node.get("status") or {}).get("allocatable") or {}
        asks = pod_totals(spec)[0]
        over = []
        for resource, amount in (("cpu", quantity.milli), ("memory", quantity.value)):
            asked, there = amount(asks.get(resource, 0)), amount(has.get(resource, 0))
            if asked > there:
                over.append(f"{resource}, requested: {asked}, allocatable: {there}")
        if over:
            raise refuse(attributes, f"Node didn't have enough allocatable resources: {'; '.join(over)}")
        system = (node["metadata"].get("labels") or {}).get("kubernetes.io/os", "")
        if system != "linux":
            raise refuse(attributes, f'pod resize is only supported on linux nodes, node "{name}" is "{system}"')
