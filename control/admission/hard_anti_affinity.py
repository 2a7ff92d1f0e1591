"""LimitPodHardAntiAffinityTopology (off by default): a required anti-affinity may keep pods off one node, not off a zone."""

from __future__ import annotations

from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin

HOSTNAME = "kubernetes.io/hostname"


class LimitPodHardAntiAffinityTopology(Plugin):
    name = "LimitPodHardAntiAffinityTopology"
    targets = ("pods",)

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE", "UPDATE")

    async def validate(self, attributes: Attributes) -> None:
        affinity = ((attributes.obj or {}).get("spec") or {}).get("affinity") or {}
        required = (affinity.get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        for term in required or ():
            key = term.get("topologyKey", "")
            if key != HOSTNAME:
                raise refuse(
                    attributes,
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key "
                    f"{HOSTNAME} is allowed",
                )
