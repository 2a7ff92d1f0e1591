"""TLS handshakes: computed in threads, a few at a time, by address in turn.

A step of a handshake, the server's answer to the first message or the check of a client's certificate, takes OpenSSL up to a
millisecond, and several with large keys. OpenSSL releases the interpreter lock meanwhile, so other requests do not wait. An
SSLProtocol computes a step whenever it has read something. So it is given a TLS object whose `do_handshake` only reports the
outcome of the step before, and `_Paced`, between it and the transport, has the step computed and then calls it again. The
connection is not read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kube.serving.turns import Slots
from kube.tls_records import Receiving, Records

log = logging.getLogger(__name__)

THREADS = max(1, (os.cpu_count() or 1) // 2)
"""Threads that compute handshakes; the event loop has the rest of the processors."""
QUEUED = 8 * THREADS
"""Steps given to the threads at a time. They need no round of the event loop between two, which may wait for a processor."""
_executor = ThreadPoolExecutor(THREADS, thread_name_prefix="tls-handshake")


async def shake(protocol: Receiving, accepted: socket.socket, tls: ssl.SSLContext, slots: Slots, owner: str) -> None:
    """See a connection through its handshake and give it to `protocol`; raises OSError where it fails."""
    stepwise = _Stepwise(tls)
    records = Records(protocol, stepwise, server_side=True, stepwise=True)
    done = records.done
    assert done is not None, "not connected yet"
    paced = _Paced(records, stepwise, slots, owner)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: paced, accepted)
    try:
        await done
    except BaseException:
        transport.abort()
        raise
    finally:
        paced.stop()
    if not transport.is_closing():
        transport.set_protocol(records)


class _Handshake(ssl.SSLObject):
    """A connection's TLS whose handshake goes on with `step` alone."""

    _done = False
    _error: Exception | None = None

    def step(self) -> None:
        """Go on as far as what was read leads; may be called in a thread while nothing else uses the object."""
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
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        if not self._done:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete (read)")


class _Stepwise:
    """TLS settings as an SSLProtocol uses them; `made` is the connection's TLS object."""

    made: _Handshake

    def __init__(self, settings: ssl.SSLContext) -> None:
        self._settings = settings

    def wrap_bio(self, *arguments: Any, **options: Any) -> _Handshake:
        self._settings.sslobject_class = _Handshake
        made = self._settings.wrap_bio(*arguments, **options)
        assert isinstance(made, _Handshake)
        self.made = made
        return made


class _Paced(asyncio.BufferedProtocol):
    """Stands between a transport and its TLS until the handshake has succeeded or failed."""

    def __init__(self, inner: Records, tls: _Stepwise, slots: Slots, owner: str) -> None:
        self._inner, self._tls, self._slots, self._owner = inner, tls, slots, owner
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
        """Pass on what was read, and have the handshake's next step computed where it is not done."""
        self._inner.buffer_updated(nbytes)
        transport, done = self._transport, self._inner.done
        if transport.is_closing() or done is None or done.done():
            return
        transport.pause_reading()
        self._step = asyncio.get_running_loop().create_task(self._compute(), name="TLS handshake")

    async def _compute(self) -> None:
        more = True
        while more:
            async with self._slots.slot(self._owner):
                await asyncio.get_running_loop().run_in_executor(_executor, self._tls.made.step)
            if self._transport.is_closing():
                return
            try:
                more = self._inner.go_on()
            except Exception:
                log.exception("connection from %s", self._owner)
                self._transport.abort()
                return
        if not self._transport.is_closing():
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
