"""Sets of ports in text, as options name them: single ports and ranges with commas between, `80,443,1024-29999`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

LAST = 65535
LOAD_BALANCERS = "80,443,1024-29999"
"""The ports that Services of type LoadBalancer may have on nodes: HTTP's, and what lies below node ports."""
API_SERVER = 6443
NODES_OWN: Mapping[tuple[str, int], str] = {
    ("TCP", 22): "ssh",
    ("TCP", 2379): "etcd",
    ("TCP", 2380): "etcd",
    ("TCP", API_SERVER): "the API server",
    ("TCP", 10248): "the kubelet",
    ("TCP", 10249): "the service proxy",
    ("TCP", 10250): "the kubelet",
    ("TCP", 10256): "the service proxy",
    ("TCP", 10257): "the controller manager",
    ("TCP", 10259): "the scheduler",
    ("UDP", 8472): "the pod network",
}
"""Ports on which the nodes' daemons listen, and the daemons: no Service gets them."""


def reserved_ports(api_port: int) -> Mapping[tuple[str, int], str]:
    """Return NODES_OWN, with the port of the API server."""
    return {**NODES_OWN, ("TCP", api_port): "the API server"}


class PortRanges(msgspec.Struct, frozen=True):
    """Ports 1 to 65535; `str` gives the text back."""

    text: str
    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, port: int) -> bool:
        return any(first <= port <= last for first, last in self.ranges)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> PortRanges:
        """Parse ports and ranges; raises ValueError with the invalid part."""
        found: list[tuple[int, int]] = []
        for part in text.split(","):
            first, dash, last = (piece.strip() for piece in part.partition("-"))
            numbers = (first, last if dash else first)
            if not all(number.isascii() and number.isdigit() and len(number) <= 5 for number in numbers):
                raise ValueError(f"{part.strip()!r} is neither a port nor a range such as 1024-29999")
            low, high = map(int, numbers)
            if not 1 <= low <= high <= LAST:
                raise ValueError(f"{part.strip()!r} is not within 1-{LAST}, lower port first")
            found.append((low, high))
        return cls(text, tuple(found))
