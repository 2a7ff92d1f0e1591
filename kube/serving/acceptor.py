"""Accepts connections one small batch at a time, and sees each through its TLS handshake within a time limit.

asyncio's own servers show a connection to nobody before its handshake is done, so those that never finish it could be neither
counted nor closed. Here a connection is in the table from the moment it is accepted. It costs a descriptor and a task until
the client has sent something and it is its address's turn; only then are buffers and TLS state made for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import traceback
from collections.abc import Callable
from typing import cast

from kube import tls_buffers
from kube.serving import accept_queue, handshakes
from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable, Stage
from kube.tls_records import Receiving

log = logging.getLogger(__name__)

PAUSE = 0.5
"""Seconds without accepting after the process ran out of descriptors."""
_SO_SNDBUFFORCE = 32  # socket(7); Python has no name for it
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """One listening socket; `make` returns the protocol that serves a connection (a `Receiving` one where there is TLS)."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[Connection], asyncio.Protocol],
        end: Callable[[asyncio.Protocol], None],
        limits: ServingLimits,
        table: ConnectionTable,
        tls: Callable[[], ssl.SSLContext] | None = None,
        admits: Callable[[socket.socket], bool] | None = None,
    ) -> None:
        """`end` closes the connection of a protocol at once; `tls` returns the settings for each connection.

        Connections that `admits` rejects are closed before they are counted.
        """
        self._listening, self._make, self._end, self._tls = listening, make, end, tls
        self._limits, self._table, self._admits = limits, table, admits
        tls_buffers.bound()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._accept_queue = accept_queue.of_loop(self._loop)
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self, backlog: int = 128) -> None:
        """Begin to accept."""
        self._listening.setblocking(False)
        self._bound_send_buffer()
        self._listening.listen(backlog)
        self._loop.add_reader(self._listening, self._ask)

    def _bound_send_buffer(self) -> None:
        """Set the size that accepted sockets inherit; root may go beyond what the system allows others (net.core.wmem_max)."""
        for option in (_SO_SNDBUFFORCE, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                self._listening.setsockopt(socket.SOL_SOCKET, option, self._limits.send_buffer)
                return

    def close(self) -> None:
        """Stop accepting and drop connections that are within their handshake; those that are served continue."""
        if self._closed:
            return
        self._closed = True
        self._accept_queue.leave(self)
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the connections that `close` dropped have ended."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _ask(self) -> None:
        self._accept_queue.ask(self)

    def accept(self, most: int) -> int:
        """Accept as many connections as may be and are there; return how many there were."""
        for number in range(most):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return number
            except ConnectionError:
                continue  # the client has gone already
            except OSError as error:
                self._exhausted(error)
                return number
            self._take(accepted, address[0] if isinstance(address, tuple) else "")
        return most

    def _exhausted(self, error: OSError) -> None:
        """Make room and come back in a moment: the socket stays readable, and the loop would do nothing else."""
        log.error("cannot accept connections: %s", error)
        if error.errno in _EXHAUSTED:
            self._table.make_room()
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(PAUSE, self._loop.add_reader, self._listening, self._ask)

    def _take(self, accepted: socket.socket, address: str) -> None:
        if self._admits is not None and not self._admits(accepted):
            accepted.close()
            return
        closer = _Closer(self._end)
        connection = self._table.add(address, closer.close)
        if connection is None:
            accepted.close()
            return
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # not for unix sockets
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._open(accepted, connection, closer), name="accepted connection")
        closer.opens(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, accepted: socket.socket, connection: Connection, closer: _Closer) -> None:
        begun = served = False
        try:
            async with asyncio.timeout(self._limits.head_timeout):
                await self._readable(accepted)
                connection.stage = Stage.HEAD if self._tls is None else Stage.HANDSHAKE
                if self._tls is not None:
                    await self._table.handshakes.wait(connection.peer)
                tls = self._tls() if self._tls is not None else None
                protocol = self._make(connection)
                begun = True
                if tls is not None:
                    await handshakes.shake(
                        cast(Receiving, protocol), accepted, tls, self._table.handshake_steps, connection.peer
                    )
                else:
                    await self._loop.connect_accepted_socket(lambda: protocol, accepted)
            closer.serves(protocol)
            served = True
        except OSError as error:  # ssl.SSLError and TimeoutError are OSErrors
            log.debug("connection from %s: %s", connection.peer, error)
            _clear_frames(error)
        except Exception as error:
            log.exception("connection from %s", connection.peer)
            _clear_frames(error)
        finally:
            if not served:
                self._table.remove(connection)
            if not begun:  # from then on the socket is the transport's
                accepted.close()

    async def _readable(self, accepted: socket.socket) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def readable() -> None:
            if not ready.done():
                ready.set_result(None)

        self._loop.add_reader(accepted, readable)
        try:
            await ready
        finally:
            self._loop.remove_reader(accepted)


class _Closer:
    """Closes one connection: cancels the task that opens it, or ends the protocol that serves it."""

    __slots__ = ("_end", "_opening", "_protocol")

    def __init__(self, end: Callable[[asyncio.Protocol], None]) -> None:
        self._end = end
        self._opening: asyncio.Task[None] | None = None
        self._protocol: asyncio.Protocol | None = None

    def opens(self, task: asyncio.Task[None]) -> None:
        """Record the task that opens the connection."""
        self._opening = task

    def serves(self, protocol: asyncio.Protocol) -> None:
        """Record the protocol that serves the connection from now on."""
        self._opening, self._protocol = None, protocol

    def close(self) -> None:
        if self._protocol is not None:
            self._end(self._protocol)
        elif self._opening is not None:
            self._opening.cancel()


def _clear_frames(error: BaseException | None) -> None:
    """Break the circle of an exception, its frames, and the future in them that has the exception.

    Otherwise the buffers of each handshake that failed, 100 KB and more, stay until the garbage collector runs.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
