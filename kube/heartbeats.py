"""A node's heartbeats: requests with reserved places on a client's connections, and a short timeout.

A cluster's node controller gives up on a node whose lease is late. Requests that wait (each for a webhook that hangs, up to
30 s) would keep the lease waiting in line behind them, so it has places that no other request takes; upstream's kubelet has a
"heartbeat client" for it.
"""

from __future__ import annotations

from kube.reserved_places import ReservedPlaces
from kube.transport import HttpsTransport

PLACES = 2
"""The lease's request and that of the node's status."""


class Heartbeats(ReservedPlaces):
    """A `Transport` over another one's connections; `seconds` is the longest that a request may take."""

    def __init__(self, transport: HttpsTransport, seconds: float) -> None:
        super().__init__(transport, PLACES, seconds)
