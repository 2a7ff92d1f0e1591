"""Watchers that cost their process almost nothing: after its response's head, a connection's data is received, not decrypted.

So what is measured is the server's time, not that of a client in Python for 100 events.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

SECONDS = 30
QUIET = 0.02


class Watchers:
    """Open watches of one path, to be used in `async with`."""

    def __init__(self, port: int, tls: ssl.SSLContext, request: bytes, count: int) -> None:
        """Prepare `count` connections to this port of 127.0.0.1 that send `request`, an HTTP/1.1 head."""
        self._port, self._tls, self._request, self._count = port, tls, request, count
        self._open: dict[int, socket.socket] = {}
        self._ready = select.epoll()
        self._missing: set[int] = set()
        self._reached = asyncio.Event()

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._count):
                made = await asyncio.to_thread(self._watch)
                self._open[made.fileno()] = made
                self._ready.register(made.fileno(), select.EPOLLIN)
        except BaseException:
            self._close()
            raise
        asyncio.get_running_loop().add_reader(self._ready.fileno(), self._receive)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        asyncio.get_running_loop().remove_reader(self._ready.fileno())
        self._close()

    async def expect(self) -> None:
        """Wait until nothing is received for 20 ms; what is received after this is the next event."""
        while True:
            self._missing = set(self._open)
            await asyncio.sleep(QUIET)
            if len(self._missing) == len(self._open):
                self._reached.clear()
                return

    async def reached(self) -> None:
        """Wait until each watcher has received something since `expect`."""
        async with asyncio.timeout(SECONDS):
            await self._reached.wait()

    def _watch(self) -> socket.socket:
        """Open a connection, and read the head of its response."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = self._tls.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        made = socket.create_connection(("127.0.0.1", self._port), timeout=SECONDS)
        head = b""
        steps = iter((secured.do_handshake, lambda: secured.write(self._request)))
        step: Callable[[], object] | None = next(steps)
        try:
            while not head.endswith(b"\r\n\r\n"):
                try:
                    while step is not None:
                        step()
                        step = next(steps, None)
                    head += secured.read(65536)
                except ssl.SSLWantReadError:
                    made.sendall(outgoing.read())
                    incoming.write(made.recv(65536))
        except BaseException:
            made.close()
            raise
        made.setblocking(False)
        return made

    def _receive(self) -> None:
        for number, _ in self._ready.poll(0):
            with contextlib.suppress(BlockingIOError):
                if not self._open[number].recv(65536):
                    raise ConnectionResetError("the server closed a watch")
            self._missing.discard(number)
        if not self._missing:
            self._reached.set()

    def _close(self) -> None:
        self._ready.close()
        for each in self._open.values():
            each.close()
