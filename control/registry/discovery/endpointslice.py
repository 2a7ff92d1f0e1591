"""EndpointSlices: up to 1000 endpoints of one address family, of which a Service may have many."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, UNSET, Column, created, name_of
from control.registry.core.endpoints import shortened
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class EndpointSliceStrategy(Strategy):
    columns = (
        NAME,
        Column("AddressType", description="Kind of the addresses."),
        Column("Ports", description="Ports of all endpoints."),
        Column("Endpoints", description="Addresses of the endpoints."),
        AGE,
    )

    def default(self, obj: Object) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def row(self, obj: Object, now: datetime) -> list[Any]:
        ports = []
        for port in obj.get("ports") or ():
            number = port.get("port")
            ports.append(str(number) if number is not None else port.get("name") or "*")
        addresses = [a for e in obj.get("endpoints") or () for a in e.get("addresses") or ()]
        return [
            name_of(obj),
            obj.get("addressType") or "",
            shortened(ports) or UNSET,
            shortened(addresses) or UNSET,
            age(created(obj), now),
        ]
