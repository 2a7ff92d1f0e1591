"""The listening sockets of a gateway, of which the network role has copies (netproxy/gateway_sockets.py).

The process takes over those of the process before, and binds the others. It closes one when no listener has used it in a
pass over all places; the sockets that were taken over stay open for longer, since Gateways are computed one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Collection, Iterable

from kube.clock import Clock
from netproxy.gateway_sockets import ALL, CLOSED, FAILED, LISTENING, TAKE
from netproxy.socket_channel import Address, SocketChannel, listening_address

log = logging.getLogger(__name__)
BACKLOG = 1024
TAKE_SECONDS = 10.0
"""Time that the start waits for the sockets of the process before."""
UNUSED_SECONDS = 30.0
"""Time for which sockets of the process before are kept without a listener."""


class HeldSockets:
    """Opens sockets; with a `channel`, these are passed to the network role."""

    def __init__(self, end: socket.socket | None, clock: Clock) -> None:
        self._clock = clock
        self._sockets: dict[Address, socket.socket] = {}
        self._new: set[Address] = set()
        """Those that the network role does not know yet."""
        self._taken: dict[Address, float] = {}
        """Those of the process before without a listener -> until when they are kept."""
        self._complete, self.parent_ended = asyncio.Event(), asyncio.Event()
        self._channel: SocketChannel | None = None
        if end is not None:
            self._channel = SocketChannel(end, self._received, self.parent_ended.set)

    async def wait_taken(self) -> None:
        """Wait until the sockets of the process before are there."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAKE_SECONDS):
                await self._complete.wait()

    def open(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens, a copy of the one that is kept; OSError if the address cannot be bound."""
        key = address, port
        found = self._sockets.get(key)
        if found is None:
            found = self._sockets[key] = bind(address, port)
            self._new.add(key)
        elif key in self._taken:
            del self._taken[key]
            self._new.add(key)
        return found.dup()

    def settle(self, used: Collection[Address], failed: Iterable[Address] = ()) -> None:
        """Close the sockets that have no listener, and report all changes to the network role."""
        now = self._clock.monotonic()
        closed = [each for each in self._sockets if each not in used and self._taken.get(each, 0.0) <= now]
        for each in closed:
            self._sockets.pop(each).close()
            self._taken.pop(each, None)
        new = [self._sockets[each] for each in self._new if each in self._sockets]
        self._new.clear()
        if self._channel is None:
            return
        if closed:
            self._channel.send(CLOSED, closed)
        if new:
            self._channel.send(LISTENING, sockets=new)
        if others := list(failed):
            self._channel.send(FAILED, others)

    @property
    def has_unused(self) -> bool:
        """True if there are sockets of the process before without a listener."""
        return bool(self._taken)

    def close(self) -> None:
        """Close all sockets here; the network role keeps its copies."""
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()
        if self._channel is not None:
            self._channel.close()

    def _received(self, kind: str, addresses: list[Address], sockets: list[socket.socket]) -> None:
        for each in sockets:
            address = listening_address(each)
            if kind != TAKE or address is None or address in self._sockets:
                each.close()
                continue
            self._sockets[address] = each
            self._taken[address] = self._clock.monotonic() + UNUSED_SECONDS
        if kind == ALL:
            self._complete.set()


def bind(address: str, port: int) -> socket.socket:
    """Return a new socket that listens; OSError if that fails.

    It listens at once: before, another one could be bound to the same address, for SO_REUSEADDR is set.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind((address, port))
        found.setblocking(False)
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    return found
