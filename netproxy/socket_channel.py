"""Messages with sockets between the network role and the process of its gateway, over a pair of Unix sockets.

Each message has a kind, addresses, and open sockets, which the kernel copies to the other process (SCM_RIGHTS, unix(7)). Only
the two processes have an end of the pair.
"""

from __future__ import annotations

import array
import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

log = logging.getLogger(__name__)
MOST = 128
"""Addresses and sockets in a message; the kernel takes 253 sockets."""
_BYTES = 1 << 16
_AT_ONCE = 16
"""Messages that are read in one iteration of the event loop."""

Address = tuple[str, int]
"""An address and a port."""
Received = Callable[[str, list[Address], list[socket.socket]], None]
"""Takes a message: its kind, addresses and sockets."""


class _Message(msgspec.Struct, frozen=True):
    kind: str
    addresses: list[Address]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a channel."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class SocketChannel:
    """One end, which it closes. `ended` is called when the other end is closed."""

    def __init__(self, end: socket.socket, received: Received, ended: Callable[[], None]) -> None:
        self._end, self._received, self._ended = end, received, ended
        self._waiting: deque[tuple[bytes, Sequence[socket.socket]]] = deque()
        self._loop = asyncio.get_running_loop()
        end.setblocking(False)
        self._loop.add_reader(end, self._read)

    def send(self, kind: str, addresses: Iterable[Address] = (), sockets: Iterable[socket.socket] = ()) -> None:
        """Send messages of a kind, at once or as soon as the other end has read others. A socket closed before is left out."""
        rest, copied = list(addresses), list(sockets)
        for start in range(0, max(len(rest), len(copied), 1), MOST):
            data = msgspec.json.encode(_Message(kind, rest[start : start + MOST]))
            self._waiting.append((data, copied[start : start + MOST]))
        self._write()

    def close(self) -> None:
        """Close this end."""
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
                log.debug("a message to the other end is lost: %s", error)  # reading finds that it is closed
            self._waiting.popleft()
        if self._end.fileno() >= 0:
            self._loop.remove_writer(self._end)

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
            message = msgspec.json.decode(data, type=_Message)
        except msgspec.DecodeError as error:
            log.error("a message cannot be read: %s", error)
            for each in sockets:
                each.close()
            return
        self._received(message.kind, message.addresses, sockets)


def _receive(end: socket.socket) -> tuple[bytes, list[socket.socket]]:
    size = array.array("i").itemsize
    data, ancillary, _, _ = end.recvmsg(_BYTES, socket.CMSG_SPACE(MOST * size), socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content[: len(content) - len(content) % size])
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
