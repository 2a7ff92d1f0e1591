"""aiohttp's connector with handshakes in threads (`kube/client_handshakes.py`), for all HTTPS clients of a daemon.

A server's certificates and signatures are the choice of who runs it: the pods of a webhook, an identity provider, or whoever
answers at the API server's address. Of aiohttp's own API, only the method that connects a socket is replaced: it has no hook
for TLS, and asyncio's would compute the handshake on the event loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp

from kube import tls_buffers
from kube.client_handshakes import ClientHandshake


class Connector(aiohttp.TCPConnector):
    """Connections whose handshakes are computed one at a time for a server, or for the namespace of a Service.

    `check` is called after each handshake, before anything is sent; it raises SSLCertVerificationError to refuse the server.
    """

    def __init__(self, *, check: Callable[[ssl.SSLObject], None] | None = None, **options: Any) -> None:
        self._check = check
        super().__init__(**options)

    async def _wrap_create_connection(
        self,
        *arguments: Any,
        req: aiohttp.ClientRequest,
        timeout: aiohttp.ClientTimeout,
        client_error: type[Exception] = aiohttp.ClientConnectorError,
        **options: Any,
    ) -> Any:
        """Return the transport and the protocol of a new connection; raises aiohttp's errors, and TimeoutError."""
        connect: Any = super()._wrap_create_connection
        options |= {"req": req, "timeout": timeout, "client_error": client_error}
        context: ssl.SSLContext | None = options.get("ssl")
        if context is None:
            return await connect(*arguments, **options)
        tls_buffers.bound()
        (factory,) = arguments
        host: str = options.pop("server_hostname")
        del options["ssl"]
        key = req.connection_key
        async with asyncio.timeout(timeout.sock_connect):
            transport, handshake = await connect(
                lambda: ClientHandshake(_Counting(factory()), context, host, owner(host)), **options
            )
            try:
                await handshake.finish(transport)
                counting: _Counting = handshake.records.protocol
                self._check_peer(counting.transport)
            except ssl.SSLCertVerificationError as error:
                raise aiohttp.ClientConnectorCertificateError(key, error) from error
            except ssl.SSLError as error:
                raise aiohttp.ClientConnectorSSLError(key, error) from error
            except OSError as error:
                if isinstance(error, TimeoutError) and error.errno is None:
                    raise
                raise client_error(key, error) from error
        return counting.transport, counting.above

    def _check_peer(self, transport: Any) -> None:
        if self._check is None:
            return
        try:
            self._check(transport.get_extra_info("ssl_object"))
        except BaseException:
            transport.abort()
            raise


class _Counting(asyncio.Protocol):
    """Counts what a protocol of aiohttp's receives, and gives it the rest unchanged."""

    def __init__(self, above: Any) -> None:
        self.received = 0
        self.transport: Any = None
        self.above, self._receive = above, above.data_received
        for name in ("connection_lost", "eof_received", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(above, name))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.above.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.received += 1
        self._receive(data)


def owner(host: str) -> str:
    """Return whose handshakes those with a server are: a Service's namespace, or its own name."""
    labels = host.split(".")
    return labels[1] if len(labels) == 3 and labels[2] == "svc" else host
