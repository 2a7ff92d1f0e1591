"""Copies of the sockets on which the node's gateway listens: the rules of the proxy lead to these addresses and no others.

Any account of the node may listen on the gateway's ports, which need no privilege, and would get the requests of a Gateway's
port 80 and 443. So the network role copies each socket on which the gateway's process listens, and an address counts as
the gateway's while the role has a socket that listens there. The next process inherits them, so no port becomes free
while the gateway restarts: connections wait in the sockets' queues. A port that is not used any more becomes free when
no rule leads to it.

Neither way depends on what other processes of the user do. Where the kernel does not let the role copy sockets, the gateway
passes them by messages, which it repeats until the role has confirmed them.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netproxy.process_sockets import ProcessSockets
from netproxy.socket_channel import Address, Message, SocketChannel, listening_address, pair

log = logging.getLogger(__name__)
MOST = 4096
"""Sockets that are kept: two for each private port of gateways would be 2048."""
TAKE, ALL, KEPT, PASS, RELEASED = "take", "all", "kept", "pass", "released"
"""Messages to the gateway: descriptors that it has inherited; that was all; addresses whose sockets the role has; those whose
sockets it cannot copy; those to which no rule leads any more."""
LISTENING, PASSED, CLOSED, FAILED = "listening", "passed", "closed", "failed"
"""Messages of the gateway: addresses and descriptors of sockets that listen; the sockets themselves; addresses that it does not
use any more; those that others have."""
_GONE = (errno.EBADF, errno.ENOTSOCK, errno.ESRCH)
"""Errors for sockets that the process has closed since."""
Changed = Callable[[frozenset[Address]], None]
Reported = Callable[[Iterable[Address]], None]


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Inheritance of a new process: an end of the channel and sockets, all of which the caller closes."""

    end: socket.socket
    sockets: tuple[socket.socket, ...]

    @property
    def descriptors(self) -> list[int]:
        """The numbers of the sockets, which are the same in the new process."""
        return [each.fileno() for each in self.sockets]

    def close(self) -> None:
        """Close everything here."""
        for each in (self.end, *self.sockets):
            each.close()


class GatewaySockets:
    """The sockets, and the channel to the gateway's process.

    `failed` gets the addresses that it cannot have, `uncopied` those whose sockets cannot be copied for a while already.
    """

    def __init__(self, failed: Reported, uncopied: Reported) -> None:
        self._failed, self._report_uncopied = failed, uncopied
        self._subscribers: list[Changed] = []
        self._sockets: dict[Address, socket.socket] = {}
        self._unused: dict[Address, socket.socket] = {}
        """Sockets that the gateway does not use any more, but rules may still lead to."""
        self._uncopied: set[Address] = set()
        self._channel: SocketChannel | None = None
        self._process: ProcessSockets | None = None
        self._refusals: set[str] = set()
        """Reasons that were logged."""

    @property
    def addresses(self) -> frozenset[Address]:
        """The addresses on which the gateway listens, or will again when its next process has started."""
        return frozenset(self._sockets)

    def subscribe(self, changed: Changed) -> None:
        """Call a function with all addresses on which the gateway listens, whenever they change."""
        self._subscribers.append(changed)

    def _changed(self) -> None:
        for changed in self._subscribers:
            changed(self.addresses)

    def attach(self) -> Inheritance:
        """Return what a new process inherits."""
        self.detach()
        own, other = pair()
        inherited = Inheritance(other, tuple(each.dup() for each in self._sockets.values()))
        channel = self._channel = SocketChannel(own, self._received, lambda: None)
        if inherited.sockets:
            channel.send(TAKE, descriptors=inherited.descriptors)
        channel.send(ALL)
        return inherited

    def started(self, pid: int) -> None:
        """Take the new process, whose sockets are copied from now on."""
        try:
            self._process = ProcessSockets(pid)
        except OSError as error:
            self._refused(error)

    def detach(self) -> None:
        """Close the channel: the process has ended, or is to end."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.close()
        self._channel = self._process = None
        self._uncopied.clear()

    def clear(self) -> None:
        """Give up all addresses: there is no gateway any more."""
        self._give_up(list(self._sockets))

    def release(self) -> None:
        """Close the sockets that were given up. No rule leads to them any more."""
        for each in self._unused.values():
            each.close()
        if self._unused and self._channel is not None:
            self._channel.send(RELEASED, self._unused)
        self._unused.clear()

    def close(self) -> None:
        """Close everything."""
        self.detach()
        self.release()
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()

    def _received(self, message: Message) -> None:
        if message.kind == LISTENING:
            received = zip(message.addresses, message.descriptors, strict=False)
            missing = [each for each in received if each[0] not in self._sockets]
            self._keep(message.addresses, self._copies(number for _, number in missing))
            if left := [address for address, _ in missing if address not in self._sockets]:
                self._want_passed(left)
        elif message.kind == PASSED:
            self._keep(message.addresses, message.sockets)
        else:
            for each in message.sockets:
                each.close()
            if message.kind == CLOSED:
                self._not_needed(message.addresses)
            elif message.kind == FAILED:
                self._cannot_listen(message.addresses)

    def _copies(self, descriptors: Iterable[int]) -> list[socket.socket]:
        """Return copies of sockets of the process, as far as the kernel allows."""
        found = []
        for number in descriptors:
            try:
                if self._process is None:
                    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
                found.append(self._process.copy(number))
            except OSError as error:
                self._refused(error)
        return found

    def _keep(self, wanted: list[Address], sockets: Iterable[socket.socket]) -> None:
        """Keep those of the sockets that listen, and confirm which of the wanted addresses are kept."""
        new = False
        for each in sockets:
            address = listening_address(each)
            if address is None or address in self._sockets or len(self._sockets) >= MOST:
                each.close()
                continue
            if (known := self._unused.pop(address, None)) is not None:
                known.close()
            self._sockets[address] = each
            self._uncopied.discard(address)
            new = True
        if new:
            self._changed()
        assert self._channel is not None  # the message came by it
        if kept := [each for each in wanted if each in self._sockets]:
            self._channel.send(KEPT, kept)

    def _want_passed(self, addresses: list[Address]) -> None:
        """Have the gateway pass sockets that cannot be copied; report those for which that did not help."""
        assert self._channel is not None
        self._channel.send(PASS, addresses)
        if again := [each for each in addresses if each in self._uncopied]:
            self._report_uncopied(again)
        self._uncopied.update(addresses[: MOST - len(self._uncopied)])

    def _refused(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if error.errno not in _GONE and reason not in self._refusals:
            self._refusals.add(reason)
            log.warning("sockets of the gateway's process cannot be copied: %s; it is to pass them", reason)

    def _not_needed(self, addresses: list[Address]) -> None:
        """Give up addresses. Those whose sockets are not here are free at once."""
        self._give_up(addresses)
        self._uncopied.difference_update(addresses)
        assert self._channel is not None  # the message came by it
        if free := [each for each in addresses if each not in self._unused]:
            self._channel.send(RELEASED, free)

    def _give_up(self, addresses: Iterable[Address]) -> None:
        """Keep sockets until `release`."""
        given = {each: self._sockets.pop(each) for each in addresses if each in self._sockets}
        if not given:
            return
        for address, each in given.items():
            if (known := self._unused.pop(address, None)) is not None:
                known.close()
            self._unused[address] = each
        self._changed()

    def _cannot_listen(self, addresses: list[Address]) -> None:
        """Report the addresses that others have. Those for which there are sockets here become free for the gateway soon."""
        self._give_up(addresses)
        if others := [each for each in addresses if each not in self._unused]:
            self._failed(others)
