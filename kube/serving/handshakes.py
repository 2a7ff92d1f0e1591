"""TLS handshakes: computed in threads, a few at a time, round robin over tables of connections and their addresses.

A step of a handshake, the server's answer to the first message or the check of a client's certificate, takes OpenSSL up to a
millisecond, and several with large keys. OpenSSL releases the interpreter lock meanwhile, so other requests do not wait. An
SSLProtocol computes a step whenever it has read something. So it is given a TLS object whose `do_handshake` only reports the
outcome of the step before, and `HandshakeProtocol`, between it and the transport, has the step computed and then calls it
again, once for each read that ends a record. The connection is not read meanwhile. Of one address, the next `AHEAD` steps of
handshakes that have begun come first: their clients have shown that they continue, which those of a flood of first messages
do not. Further steps wait as first messages do, for a client may split its messages over thousands of records. A thread
cannot be stopped: if the wait for a step ends, its slot is kept until the thread has returned. Where a process has several
tables of connections, as a gateway for its namespaces, the threads take steps round robin over the tables.

A client's handshakes (`kube/client_handshakes.py`) use the same classes. The first step of a client, its ClientHello, needs
no data of the peer, and is computed immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from kube.serving.fair_queue import Slots
from kube.serving.fair_threads import FairThreads
from kube.tls_records import Receiving, Records

log = logging.getLogger(__name__)

THREADS = max(1, (os.cpu_count() or 1) // 2)
"""Threads that compute handshakes; the event loop has the rest of the processors."""
QUEUED = 8 * THREADS
"""Steps that one table of connections gives to the threads at a time. They need no round of the event loop between two, which
may wait for a processor."""
_threads = FairThreads(THREADS, "tls-handshake")
RECORD_BYTES = 16 << 10
"""The most that a TLS record has."""
AHEAD = 3
"""Steps of a handshake after the first that come before first messages; a client needs one or two."""
Compute = Callable[[Callable[[], None]], Awaitable[None]]
Submit = Callable[[Callable[[], None]], Future[None]]


async def shake(protocol: Receiving, accepted: socket.socket, tls: ssl.SSLContext, slots: Slots, owner: str) -> None:
    """See a connection through its handshake and give it to `protocol`; raises OSError if it fails."""
    stepwise = Stepwise(tls)
    records = Records(protocol, stepwise, server_side=True, stepwise=True)
    done = records.done
    assert done is not None, "not connected yet"
    steps = 0

    async def compute(step: Callable[[], None]) -> None:
        nonlocal steps
        ahead = 0 < steps <= AHEAD
        steps += 1
        await slots.acquire(owner, ahead=ahead)
        await in_thread(lambda call: _threads.submit(slots, call), step, slots.release)

    handshake = HandshakeProtocol(records, stepwise, compute, owner)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: handshake, accepted)
    try:
        await done
    except BaseException:
        transport.abort()
        raise
    finally:
        handshake.stop()
    if not transport.is_closing():
        transport.set_protocol(records)


async def in_thread(submit: Submit, function: Callable[[], None], ended: Callable[[], None]) -> None:
    """Call a function in a thread, to which `submit` gives it; `ended` is called on the loop when it has returned, also if no
    task waits any more.
    """

    def returned(future: asyncio.Future[None]) -> None:
        ended()
        if not future.cancelled():
            future.exception()  # the waiter may have gone

    try:
        running = asyncio.wrap_future(submit(function))
    except BaseException:
        ended()
        raise
    running.add_done_callback(returned)
    await asyncio.shield(running)


class _Handshake(ssl.SSLObject):
    """A connection's TLS whose handshake continues with `step` alone, after the first of a client."""

    _done = _begun = False
    _error: Exception | None = None

    def read(self, len: int = RECORD_BYTES, buffer: Any = None) -> Any:
        """Return one record's data: OpenSSL returns no more, and allocating the 256 KiB that uvloop asks for takes longer."""
        return super().read(min(len, RECORD_BYTES), buffer)

    def step(self) -> None:
        """Continue as far as what was read leads; may be called in a thread while nothing else uses the object."""
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            pass
        except Exception as error:
            self._error = error.with_traceback(None)  # else a circle with all buffers
        else:
            self._done = True

    def do_handshake(self) -> None:
        """Report the outcome of the last step, as `ssl.SSLObject` does that of a call."""
        if not self._begun and not self.server_side:
            self._begun = True
            self.step()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        if not self._done:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete (read)")


class Stepwise:
    """TLS settings as an SSLProtocol uses them; `made` is the connection's TLS object."""

    made: _Handshake

    def __init__(self, settings: ssl.SSLContext) -> None:
        self._settings = settings

    def wrap_bio(self, *arguments: Any, **options: Any) -> _Handshake:
        before = self._settings.sslobject_class
        self._settings.sslobject_class = _Handshake
        try:
            made = self._settings.wrap_bio(*arguments, **options)
        finally:
            self._settings.sslobject_class = before  # a client's settings are also used by others
        assert isinstance(made, _Handshake)
        self.made = made
        return made


class HandshakeProtocol(asyncio.BufferedProtocol):
    """Stands between a transport and its TLS until the handshake has succeeded or failed."""

    def __init__(self, inner: Records, tls: Stepwise, compute: Compute, owner: str) -> None:
        """`compute` calls a step in a thread."""
        self._inner, self._tls, self._compute_step, self._owner = inner, tls, compute, owner
        self._transport: Any = None
        self._step: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop()
        self._inner.connection_lost(exc)
        self._inner = self._transport = None  # type: ignore[assignment]  # see Records

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read, and have the handshake's next step computed where it is not done and a record has ended."""
        self._inner.buffer_updated(nbytes)
        transport, done = self._transport, self._inner.done
        if transport.is_closing() or done is None or done.done() or not self._inner.complete:
            return
        transport.pause_reading()
        self._step = asyncio.get_running_loop().create_task(self._compute(), name="TLS handshake")

    async def _compute(self) -> None:
        more = True
        while more:
            await self._compute_step(self._tls.made.step)
            if self._transport.is_closing():
                return
            try:
                more = self._inner.go_on()
            except Exception:
                log.exception("connection from %s", self._owner)
                self._transport.abort()
                return
        if not self._transport.is_closing():
            with contextlib.suppress(RuntimeError):  # closed after an error, which uvloop reports by this alone
                self._transport.resume_reading()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def stop(self) -> None:
        """Wait for no step any more."""
        if self._step is not None:
            self._step.cancel()
            self._step = None
