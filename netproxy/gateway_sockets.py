"""Copies of the sockets on which the node's gateway listens: the rules of the proxy lead to these addresses and no others.

Any account of the node may listen on the gateway's ports, which need no privilege, and would get the requests of a Gateway's
port 80 and 443. So the gateway's process passes each socket on which it listens to the network role, and an address counts as
the gateway's while the role has a socket that listens there. The role passes them to the next process, so no port becomes free
while the gateway restarts: connections wait in the sockets' queues. A port that is not used any more becomes free when
no rule leads to it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable

from netproxy.socket_channel import Address, SocketChannel, listening_address, pair

log = logging.getLogger(__name__)
MOST = 4096
"""Sockets that are kept: two for each private port of gateways would be 2048."""
TAKE, ALL = "take", "all"
"""Messages to the gateway: sockets of the process before; that was all."""
LISTENING, CLOSED, FAILED = "listening", "closed", "failed"
"""Messages of the gateway: sockets that listen now, addresses that do not any more, addresses that others have."""
Changed = Callable[[frozenset[Address]], None]


class GatewaySockets:
    """The sockets, and the channel to the gateway's process.

    `changed` gets all addresses on which it listens, `failed` those that it cannot have.
    """

    def __init__(self, changed: Changed, failed: Callable[[Iterable[Address]], None]) -> None:
        self._changed, self._failed = changed, failed
        self._sockets: dict[Address, socket.socket] = {}
        self._unused: dict[Address, socket.socket] = {}
        """Sockets that the gateway has closed, but rules may still lead to."""
        self._channel: SocketChannel | None = None

    @property
    def addresses(self) -> frozenset[Address]:
        """The addresses on which the gateway listens, or will again when its next process has started."""
        return frozenset(self._sockets)

    def attach(self) -> socket.socket:
        """Return the end of a channel for a new process, which gets all sockets; the caller closes it."""
        self.detach()
        own, other = pair()
        channel = self._channel = SocketChannel(own, self._received, lambda: None)
        if self._sockets:
            channel.send(TAKE, sockets=self._sockets.values())
        channel.send(ALL)
        return other

    def detach(self) -> None:
        """Close the channel: the process has ended, or is to end."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def clear(self) -> None:
        """Give up all addresses: there is no gateway any more."""
        self._give_up(list(self._sockets))

    def release(self) -> None:
        """Close the sockets that were given up. No rule leads to them any more."""
        for each in self._unused.values():
            each.close()
        self._unused.clear()

    def close(self) -> None:
        """Close everything."""
        self.detach()
        self.release()
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()

    def _received(self, kind: str, addresses: list[Address], sockets: list[socket.socket]) -> None:
        for each in sockets:
            address = listening_address(each)
            full = address not in self._sockets and len(self._sockets) >= MOST
            if kind != LISTENING or address is None or full:
                each.close()
                continue
            if (known := self._sockets.get(address)) is not None:
                known.close()
            self._sockets[address] = each
        if kind == CLOSED:
            self._give_up(addresses)
        elif kind == FAILED:
            self._cannot_listen(addresses)
        elif sockets:
            self._changed(self.addresses)

    def _give_up(self, addresses: Iterable[Address]) -> None:
        """Keep sockets until `release`."""
        given = {each: self._sockets.pop(each) for each in addresses if each in self._sockets}
        if not given:
            return
        for address, each in given.items():
            if (known := self._unused.pop(address, None)) is not None:
                known.close()
            self._unused[address] = each
        self._changed(self.addresses)

    def _cannot_listen(self, addresses: Iterable[Address]) -> None:
        """Return the sockets that the gateway needs again; report the addresses that others have."""
        known = {each: self._unused.pop(each) for each in addresses if each in self._unused}
        if known:
            self._sockets.update(known)
            assert self._channel is not None  # the message came by it
            self._channel.send(TAKE, sockets=known.values())
        if others := [each for each in addresses if each not in self._sockets]:
            self._failed(others)
