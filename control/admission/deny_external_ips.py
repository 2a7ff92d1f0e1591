"""DenyServiceExternalIPs: denies new externalIPs, which could take over addresses (CVE-2020-8554).

Upstream ships it switched off; here it is on, as hardening guides ask. What a Service has already it may keep.
"""

from __future__ import annotations

from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin


class DenyServiceExternalIPs(Plugin):
    name = "DenyServiceExternalIPs"
    targets = ("services",)

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("services", "CREATE", "UPDATE")

    async def validate(self, attributes: Attributes) -> None:
        new = (attributes.obj or {}).get("spec", {}).get("externalIPs") or []
        old = (attributes.old or {}).get("spec", {}).get("externalIPs") or []
        if set(new) - set(old):
            raise refuse(attributes, "Use of external IPs is denied by admission control.")
