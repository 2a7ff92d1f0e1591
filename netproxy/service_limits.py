"""What one Service may cost each node: the API limits neither ports, addresses nor endpoints, and rules are their product.

Whoever may write Services of a namespace writes them for all nodes. A body of 1.5 MB has 15 000 ports or 50 000 addresses.
Upstream writes whatever comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import core_v1
from netproxy.endpoints import SlicePorts
from netproxy.errors import ServiceError

MAX_RULES = 100_000
"""Pairs of a port's address and an endpoint, of one Service and family: so many are written in some seconds. A Service of three
ports that a node port and a load balancer lead to may have 11 000 endpoints."""


def check_cost(
    ports: Sequence[core_v1.ServicePort],
    family: int,
    addresses: int,
    balanced: int,
    slice_ports: SlicePorts,
) -> None:
    """Raise ServiceError for ports that would need too many rules; nothing is multiplied out for that.

    Each port is served at `addresses`, node ports counted; `balanced` is how many pairs of a load balancer's address and a
    source range a port needs, where the mode cannot share them.
    """
    kind, sizes = "IPv4" if family == 4 else "IPv6", dict[tuple[str, str], int]()
    count = 0
    for port in ports:
        key = port.name or "", port.protocol or "TCP"
        if key not in sizes:
            sizes[key] = _endpoints(slice_ports, key, kind)
        count += addresses * max(1, sizes[key]) + balanced
    if count > MAX_RULES:
        raise ServiceError(
            f"its ports, addresses and endpoints multiply to {count} rules of {kind}; {MAX_RULES} are written at most"
        )


def _endpoints(slice_ports: SlicePorts, key: tuple[str, str], kind: str) -> int:
    """Return how many endpoints slices name for a port, ready or not."""
    return sum(
        len(slice_.endpoints) * len(numbers)
        for slice_, numbers in slice_ports.get(key, ())
        if slice_.address_type == kind
    )
