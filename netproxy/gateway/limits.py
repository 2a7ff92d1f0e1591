"""Limits of a gateway: sizes in bytes, times in seconds.

Clients, backends and authors of routes are not trusted. What one of them holds is limited, and what all clients of a Gateway's
namespace, or all backends of a Service's namespace, hold together is limited to a share of what the process has.
"""

from __future__ import annotations

from dataclasses import dataclass

from kube.gateway.model import LONGEST_TARGET
from kube.serving.limits import ServingLimits

CLIENTS = ServingLimits(
    head_bytes=64 << 10,
    line_bytes=LONGEST_TARGET,
    headers=128,
    head_timeout=30.0,
    idle_timeout=75.0,
    unauthenticated=8192,
    unauthenticated_per_peer=2048,
)
"""Limits of the listening side, one table of connections for each namespace of Gateways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendLimits:
    """Limits of the connections to backends."""

    head_bytes: int = 64 << 10
    """A response's head, with the 1xx responses before it; also what may come of a body without a byte of it."""
    headers: int = 256
    announcements: int = 8
    """1xx responses before a response."""
    buffered: int = 128 << 10
    """Bytes of a response that are kept until the client has read those before."""
    connections: int = 4096
    """Requests under way at backends in all."""
    each: int = 1024
    """The same at backends of one namespace; one more ends another (`places`) or is answered 503."""
    client: int = 512
    """Requests of one client address that are under way at backends of one namespace."""
    idle: int = 1024
    idle_each: int = 128
    idle_timeout: float = 4.0
    """Less than the time after which common servers close an idle connection."""
    fresh: float = 1.0
    """Idle time of connections for requests that must not be repeated: few servers close a connection so soon."""
    connect_timeout: float = 5.0
    attempts: int = 3
    """Endpoints that are tried until one accepts a connection."""
    avoided: float = 5.0
    """Time for which an endpoint that accepted no connection is tried after all others."""
    response_timeout: float = 60.0
    """Until a response's head, when the request has been sent."""
    stall_timeout: float = 60.0
    """Time for which a backend may leave the body of a request unread."""
    silence_timeout: float = 300.0
    """Time without a byte of a response's body, or on an upgraded connection in both directions."""


BACKENDS = BackendLimits()
STEPS = 1000
"""Steps of about a microsecond that finding a request's rule may take: hostnames and prefixes that are looked up, combinations
of conditions that are compared. A request that needs more is answered 500."""
HOPS = 8
"""Times that a request may pass gateways of this cluster."""
LOOP_NAMES = 64
"""Names of gateways, also of others, in all `CDN-Loop` headers of a request."""
