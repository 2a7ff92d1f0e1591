"""Messages about sockets between the network role and the process of its gateway, over a pair of Unix sockets.

Each message has a kind, addresses, numbers of descriptors, and possibly open sockets, which the kernel copies to the other
process (SCM_RIGHTS, unix(7)). Only the two processes have an end of the pair.

The kernel refuses to copy sockets (ETOOMANYREFS) while all processes of the user have more descriptors under way than the
sender may have open. Containers that run as root count, and can keep descriptors under way for as long as they like. So
sockets are copied in this way only where there is no other, and their sender has to repeat them.
"""

from __future__ import annotations

import array
import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

log = logging.getLogger(__name__)
MOST = 128
"""Addresses, descriptors and sockets in a message; the kernel takes 253 sockets."""
RETRY_SECONDS = 1.0
"""Time until a message that the kernel had no memory for is sent again."""
_BYTES = 1 << 16
_AT_ONCE = 16
"""Messages that are read in one iteration of the event loop."""
_ENDED = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)

Address = tuple[str, int]
"""An address and a port."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message; its receiver closes the sockets."""

    kind: str
    addresses: list[Address]
    descriptors: list[int]
    sockets: list[socket.socket] = field(default_factory=list)


class _Content(msgspec.Struct, frozen=True):
    kind: str
    addresses: list[Address]
    descriptors: list[int]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a channel."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class SocketChannel:
    """One end, which it closes. `ended` is called when the other end is closed."""

    def __init__(self, end: socket.socket, received: Callable[[Message], None], ended: Callable[[], None]) -> None:
        self._end, self._received, self._ended = end, received, ended
        self._waiting: deque[tuple[bytes, list[socket.socket]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        end.setblocking(False)
        self._loop.add_reader(end, self._read)

    def send(
        self,
        kind: str,
        addresses: Iterable[Address] = (),
        descriptors: Iterable[int] = (),
        sockets: Iterable[socket.socket] = (),
    ) -> None:
        """Send messages of a kind, at once or as soon as the other end has read others.

        A message with sockets is lost if the kernel does not copy them. A socket closed before is left out.
        """
        rest, numbers, copied = list(addresses), list(descriptors), list(sockets)
        for start in range(0, max(len(rest), len(numbers), len(copied), 1), MOST):
            part = slice(start, start + MOST)
            data = msgspec.json.encode(_Content(kind, rest[part], numbers[part]))
            self._waiting.append((data, copied[part]))
        self._write()

    @property
    def busy(self) -> bool:
        """True while messages wait."""
        return bool(self._waiting)

    def close(self) -> None:
        """Close this end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._end.fileno() >= 0:
            self._loop.remove_reader(self._end)
            self._loop.remove_writer(self._end)
            self._end.close()
        self._waiting.clear()

    def _write(self) -> None:
        while self._waiting and self._end.fileno() >= 0:
            data, sockets = self._waiting[0]
            descriptors = [each.fileno() for each in sockets if each.fileno() >= 0]
            try:
                socket.send_fds(self._end, [data], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._end, self._write)
                return
            except OSError as error:
                if error.errno not in _ENDED and not descriptors:
                    self._write_later(error)
                    return
                self._lost(error)
            self._waiting.popleft()
        if self._end.fileno() >= 0:
            self._loop.remove_writer(self._end)

    def _write_later(self, error: OSError) -> None:
        log.error("a message to the other end is sent again: %s", error)
        self._loop.remove_writer(self._end)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(RETRY_SECONDS, self._write)

    def _lost(self, error: OSError) -> None:
        if error.errno in _ENDED:
            log.debug("a message to the other end is lost: %s", error)  # reading finds that it is closed
        elif not self._refused:
            self._refused = True
            log.error("sockets cannot be passed to the other end: %s", error)

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            if self._end.fileno() < 0:
                return
            try:
                data, sockets = _receive(self._end)
            except BlockingIOError:
                return
            except OSError:
                data, sockets = b"", []
            if not data:
                self._loop.remove_reader(self._end)
                self._ended()
                return
            self._take(data, sockets)

    def _take(self, data: bytes, sockets: list[socket.socket]) -> None:
        try:
            content = msgspec.json.decode(data, type=_Content)
        except msgspec.DecodeError as error:
            log.error("a message cannot be read: %s", error)
            for each in sockets:
                each.close()
            return
        self._received(Message(content.kind, content.addresses, content.descriptors, sockets))


def _receive(end: socket.socket) -> tuple[bytes, list[socket.socket]]:
    size = array.array("i").itemsize
    data, ancillary, flags, _ = end.recvmsg(_BYTES, socket.CMSG_SPACE(MOST * size), socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content[: len(content) - len(content) % size])
    if flags & socket.MSG_CTRUNC:
        log.error("sockets of a message are lost: too many are open here")
    return data, [socket.socket(fileno=number) for number in numbers]


def listening_address(found: socket.socket) -> Address | None:
    """Return the address on which a TCP socket listens, None if it does not."""
    try:
        if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
            return None
        if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        address, port = found.getsockname()[:2]
    except OSError:
        return None
    return str(address), int(port)
