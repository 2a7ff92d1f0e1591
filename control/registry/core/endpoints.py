"""Endpoints: the old, one-object form of a Service's addresses."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age

SHOWN = 3


class EndpointsStrategy(Strategy):
    columns = (NAME, Column("Endpoints", description="Addresses and ports that are ready."), AGE)
    allow_create_on_update = True
    has_generation = False

    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                if not port.get("protocol"):
                    port["protocol"] = "TCP"

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), _text(obj.get("subsets") or []), age(created(obj), now)]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]


def _text(subsets: list[Object]) -> str:
    if not subsets:
        return NONE
    found = []
    for subset in subsets:
        addresses = [a.get("ip", "") for a in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:
            found += addresses
        for port in ports or ():
            found += [f"[{a}]:{port.get('port')}" if ":" in a else f"{a}:{port.get('port')}" for a in addresses]
    return shortened(found)


def shortened(items: list[str]) -> str:
    """Join the first three and count the rest."""
    text = ",".join(items[:SHOWN])
    return f"{text} + {len(items) - SHOWN} more..." if len(items) > SHOWN else text
