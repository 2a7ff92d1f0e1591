"""PodTopologyLabels: a pod carries the zone and the region of its node, so that its containers get them from the downward API.

Set on the Binding, whose labels its pod gets, and on pods that name their node when they are made.
Upstream: plugin/pkg/admission/podtopologylabels, KEP 4742.
"""

from __future__ import annotations

from typing import Any

from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup

KEYS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def topology_labels(node: dict[str, Any]) -> dict[str, str]:
    """Return the labels that a node's pods get from it."""
    labels = node["metadata"].get("labels") or {}
    return {key: labels[key] for key in KEYS if key in labels}


class PodTopologyLabels(Plugin):
    name = "PodTopologyLabels"
    targets = ("pods",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        created = attributes.operation == "CREATE" and attributes.resource.target == "pods"
        return created and attributes.subresource in ("", "binding")

    async def admit(self, attributes: Attributes) -> None:
        obj = attributes.obj
        assert obj is not None
        if attributes.subresource:
            target = obj.get("target") or {}
            name = target.get("name") if target.get("kind") == "Node" else None
        else:
            name = obj.get("spec", {}).get("nodeName")
        node = self._lookup.get("nodes", "", name) if name else None
        if node is not None and (labels := topology_labels(node)):
            metadata = obj.setdefault("metadata", {})
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
            attributes.changed(self.name, "metadata.labels")
