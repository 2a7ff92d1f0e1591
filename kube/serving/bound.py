"""A TCP socket that is bound to an address of one family."""

from __future__ import annotations

import socket


def bound(host: str, port: int) -> socket.socket:
    """Return a new socket that is bound; OSError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    return found
