"""Ingresses."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age

SHOWN = 3


class IngressStrategy(Strategy):
    columns = (
        NAME,
        Column("Class", description="Which controller serves it."),
        Column("Hosts", description="Hosts that requests are matched against."),
        Column("Address", description="Where the load balancer listens."),
        Column("Ports", description="80, and 443 with TLS."),
        AGE,
    )

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        hosts = [r["host"] for r in spec.get("rules") or () if r.get("host")]
        shown = ",".join(hosts[:SHOWN]) or "*"
        if len(hosts) > SHOWN:
            shown += f" + {len(hosts) - SHOWN} more..."
        points = (status.get("loadBalancer") or {}).get("ingress") or []
        addresses = sorted({p.get("ip") or p.get("hostname") or "" for p in points} - {""})
        return [
            name_of(obj),
            spec.get("ingressClassName") or NONE,
            shown,
            ",".join(addresses),
            "80, 443" if spec.get("tls") else "80",
            age(created(obj), now),
        ]
