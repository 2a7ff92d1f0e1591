"""PodTopologyLabels: a pod carries the zone and the region of its node, so that its containers can be told by the downward API.

Set when a pod is bound (by the binding subresource), and here for pods that name their node when they are made.
Upstream: plugin/pkg/admission/podtopologylabels, KEP 4742.
"""

from __future__ import annotations

from typing import Any

from control.admission.lookup import Lookup
from control.admission.plugin import Attributes, Plugin

KEYS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def topology_labels(node: dict[str, Any]) -> dict[str, str]:
    """Return the labels that a node's pods get from it."""
    labels = node["metadata"].get("labels") or {}
    return {key: labels[key] for key in KEYS if key in labels}


class PodTopologyLabels(Plugin):
    name = "PodTopologyLabels"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        name = attributes.obj.get("spec", {}).get("nodeName")
        node = self._lookup.get("nodes", "", name) if name else None
        if node is not None and (labels := topology_labels(node)):
            metadata = attributes.obj["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
