"""The limits of a listening socket, as one value that is passed to the server.

Numbers are upstream's where it has them: kube-apiserver and kubelet limit a request's head to 1 MiB (MaxHeaderBytes), the API
server its time to 32 s (ReadHeaderTimeout, which Go applies to the TLS handshake too), both an idle connection to 90 s
(IdleTimeout; staging/src/k8s.io/apiserver/pkg/server/secure_serving.go, pkg/kubelet/server/server.go). Go needs no limits on
the number of headers, pipelined requests and connections: it reads no request before the previous one is answered, a header
takes little more memory than its bytes, and so does a connection. Here each of them has a limit.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """Limits of one listener; sizes are bytes, times are seconds."""

    head_bytes: int = 1 << 20
    """A request's line and headers together; more is answered with 431."""
    line_bytes: int = (1 << 16) - 1
    """A request's target; more is answered with 414. The parser of URLs has the same limit."""
    headers: int = 2000
    """Headers of a request; more is answered with 431."""
    pipelined: int = 64
    """Requests that wait behind the one being answered; a connection that sends more is closed."""
    head_timeout: float = 32.0
    """From the first byte (or the connection's start) to the end of the head; the TLS handshake has as long."""
    idle_timeout: float = 90.0
    """Between an answer and the next request."""
    body_rate: int = 240
    """Bytes a second that a body must come with, counted over each `body_window`."""
    body_window: float = 30.0
    send_timeout: float = 30.0
    """Time that a client may leave an answer, or a watch's events, unread before its connection is closed."""
    send_buffer: int = 512 << 10
    """Bytes that the kernel takes of an answer. By itself it would take 4 MiB: a thousand clients that do not read would use
    up all that it has for TCP (net.ipv4.tcp_mem), and every connection of the machine would stand still."""
    unauthenticated: int = 4096
    """Connections on which nobody has been identified; one more closes the weakest of the address that has most. With TLS each
    takes some 30 KiB."""
    unauthenticated_per_peer: int = 1024
    """The same from one address (IPv6: one /64); one more closes that address's own weakest. A thousand clients behind one
    address may connect at the same moment: none is identified before its handshake is done."""
    connections: int = 0
    """Connections in all; 0: seven eighths of the process's file descriptors."""
    large_head: int = 16 << 10
    """Bytes of a head that cost nothing. What is beyond them takes the server about 10 ms a megabyte, before it is known who
    asks and what for: it is read at a rate, `head_rate` bytes a second of an address or a user, after `head_burst` at once.
    It is charged as it arrives, and one request with such a head is begun in an iteration of the event loop."""
    head_burst: int = 2 << 20
    head_rate: int = 256 << 10
    heads_bytes: int = 32 << 20
    """Bytes of unfinished heads on all connections; more closes the connection that holds most."""
    unread_bytes: int = 0
    """Bytes of responses that clients do not read, with the buffers of their connections; as many of incomplete bodies. 0: a
    64th of the machine's memory, at least 128 MiB and at most 1 GiB. One address or user may have an eighth of that."""

    @property
    def most_connections(self) -> int:
        """Return the limit on connections in all; the descriptors that are left serve files and the server's own calls."""
        if self.connections:
            return self.connections
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(64, descriptors - descriptors // 8)

    @property
    def most_unread_bytes(self) -> int:
        """Return the limit on bytes of unread answers."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return self.unread_bytes or min(max(128 << 20, memory // 64), 1 << 30)


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit on file descriptors to the hard one, as Go does for its programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
