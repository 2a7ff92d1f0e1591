"""NetworkPolicies: which traffic chosen pods take and send."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of, selector_text
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class NetworkPolicyStrategy(Strategy):
    columns = (NAME, Column("Pod-Selector", description="The pods it is about."), AGE)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("podSelector", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
            for port in rule.get("ports") or ():
                if not port.get("protocol"):
                    port["protocol"] = "TCP"

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), selector_text((obj.get("spec") or {}).get("podSelector")), age(created(obj), now)]
