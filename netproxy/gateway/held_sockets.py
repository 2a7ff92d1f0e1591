"""The listening sockets of a gateway, of which the network role has copies (netproxy/gateway_sockets.py).

The process inherits those of the process before, and binds the others. It gives one up when no listener has used it in a
pass over all places, and closes it when the network role leads no connections to it any more; the sockets that were inherited
stay for longer, since Gateways are computed one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Collection, Iterable

from kube.clock import Clock
from kube.serving.bound import bound
from netproxy.gateway_sockets import ALL, CLOSED, FAILED, KEPT, LISTENING, PASS, PASSED, RELEASED, TAKE
from netproxy.socket_channel import Address, Message, SocketChannel, listening_address

log = logging.getLogger(__name__)
BACKLOG = 1024
TAKE_SECONDS = 10.0
"""Time that the start waits for the sockets of the process before."""
UNUSED_SECONDS = 30.0
"""Time for which sockets of the process before are kept without a listener."""
REPEAT_SECONDS = 2.0
"""Time after which the network role is asked again to copy a socket."""


class HeldSockets:
    """Opens sockets; with an end of a channel, the network role copies these."""

    def __init__(self, end: socket.socket | None, clock: Clock) -> None:
        self._clock = clock
        self._sockets: dict[Address, socket.socket] = {}
        self._new: set[Address] = set()
        """Those of which the network role was not informed yet."""
        self._unconfirmed: set[Address] = set()
        """Those that it has not confirmed."""
        self._taken: dict[Address, float] = {}
        """Those of the process before without a listener -> until when they are kept."""
        self._closed: set[Address] = set()
        """Those without a listener to which rules may still lead."""
        self._timer: asyncio.TimerHandle | None = None
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
        elif key in self._taken or key in self._closed:
            self._taken.pop(key, None)
            self._closed.discard(key)
            self._new.add(key)
        return found.dup()

    def settle(self, used: Collection[Address], failed: Iterable[Address] = ()) -> None:
        """Give up the sockets that have no listener, and report all changes to the network role."""
        now = self._clock.monotonic()
        unused = [each for each in self._sockets if each not in used and self._taken.get(each, 0.0) <= now]
        closed = [each for each in unused if each not in self._closed]
        self._closed.update(closed)
        for each in closed:
            self._taken.pop(each, None)
        self._new.difference_update(closed)
        self._unconfirmed.difference_update(closed)
        if self._channel is None:
            self._new.clear()
            self._close(closed)
            return
        if closed:
            self._channel.send(CLOSED, closed)
        if self._new:
            self._offer(self._new)
            self._unconfirmed |= self._new
            self._new.clear()
            self._timer = self._timer or asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._repeat)
        if others := list(failed):
            self._channel.send(FAILED, others)

    @property
    def has_unused(self) -> bool:
        """True if there are sockets of the process before without a listener."""
        return bool(self._taken)

    def close(self) -> None:
        """Close all sockets here; the network role keeps its copies."""
        self._close(list(self._sockets))
        if self._timer is not None:
            self._timer.cancel()
        if self._channel is not None:
            self._channel.close()

    def _close(self, addresses: Iterable[Address]) -> None:
        for each in addresses:
            self._sockets.pop(each).close()
            self._closed.discard(each)

    def _offer(self, addresses: Collection[Address]) -> None:
        assert self._channel is not None
        self._channel.send(LISTENING, addresses, [self._sockets[each].fileno() for each in addresses])

    def _repeat(self) -> None:
        """Have the network role copy sockets that it has not confirmed, again and again."""
        self._timer = None
        if not self._unconfirmed or self._channel is None:
            return
        if not self._channel.busy:
            self._offer(self._unconfirmed)
        self._timer = asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._repeat)

    def _received(self, message: Message) -> None:
        for each in message.sockets:
            each.close()
        known = [each for each in message.addresses if each in self._sockets]
        if message.kind == TAKE:
            self._take(message.descriptors)
        elif message.kind == ALL:
            self._complete.set()
        elif message.kind == KEPT:
            self._unconfirmed.difference_update(known)
        elif message.kind == PASS and known:
            assert self._channel is not None  # the message came by it
            self._channel.send(PASSED, known, sockets=[self._sockets[each] for each in known])
        elif message.kind == RELEASED:
            self._close([each for each in known if each in self._closed])

    def _take(self, descriptors: Iterable[int]) -> None:
        """Take the sockets with these numbers, which the process has inherited."""
        for number in descriptors:
            try:
                found = socket.socket(fileno=number)
            except OSError as error:
                log.error("a socket of the process before was not inherited: %s", error)
                continue
            found.set_inheritable(False)
            address = listening_address(found)
            if address is None or address in self._sockets:
                found.close()
                continue
            self._sockets[address] = found
            self._taken[address] = self._clock.monotonic() + UNUSED_SECONDS


def bind(address: str, port: int) -> socket.socket:
    """Return a new socket that listens; OSError if that fails.

    It listens at once: before, another one could be bound to the same address, for SO_REUSEADDR is set.
    """
    found = bound(address, port)
    try:
        found.setblocking(False)
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    return found
