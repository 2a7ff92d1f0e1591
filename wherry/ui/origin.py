"""Origins for the page, a new one for each run, as browsers use what they have stored for an address whoever serves it later.

A cached script or a service worker of the server that had the same address and port before would run as the page and have its
session. On Linux all of 127.0.0.0/8 is loopback, so that a run takes a random address of it. Elsewhere, and for browsers of
other machines (ssh -L), it takes a random name under localhost, which browsers resolve to loopback by themselves; it listens
on both loopback addresses then, as browsers try both and another user may listen on the one that is left.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from kube.serving.bound import bound

LOOPBACKS = ("127.0.0.1", "::1")
TRIES = 20
"""Free ports of one loopback address that are tried on the other one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The host and the port of a page, and the sockets that listen for it."""

    host: str
    port: int
    sockets: Sequence[socket.socket]

    @property
    def authority(self) -> str:
        """Return the host with the port, as the Host header has it."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the origin as browsers write it; a URL is this and a path."""
        return f"http://{self.authority}" if self.port != 80 else f"http://{self.host}"


def own(port: int, *, localhost: bool) -> Origin:
    """Return an origin that no run had before, with sockets that listen; port 0 is a free one. Raise OSError."""
    if localhost or sys.platform != "linux":
        sockets = _on_both(port)
        return Origin(f"wherry-{secrets.token_hex(16)}.localhost", sockets[0].getsockname()[1], sockets)
    host = "127." + ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))
    listening = _listening(host, port)
    return Origin(host, listening.getsockname()[1], [listening])


def _on_both(port: int) -> list[socket.socket]:
    """Return sockets that listen on the same port of both loopback addresses, or of the only one that there is."""
    for left in reversed(range(TRIES)):
        first = _listening(LOOPBACKS[0], port)
        try:
            return [first, _listening(LOOPBACKS[1], first.getsockname()[1])]
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # no IPv6
                return [first]
            first.close()
            if port or not left or error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("unreachable")


def _listening(host: str, port: int) -> socket.socket:
    listening = bound(host, port)
    with contextlib.ExitStack() as stack:
        stack.callback(listening.close)
        listening.listen()
        stack.pop_all()
    return listening
