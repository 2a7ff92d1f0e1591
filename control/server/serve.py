"""The TLS listener: uvicorn on uvloop and httptools, with optional client certificates.

uvicorn's own start and stop are taken apart so that the caller decides when to listen, when to stop accepting, and how long
those still served may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import Any

from control.config import ControlConfig
from control.http.protocol import ApiProtocol
from kube import client_authorities, tls_settings
from kube.serving.server import BoundedServer
from kube.serving.table import ConnectionTable
from kube.serving.uvicorn_modules import Config
from kube.tls_files import TlsFiles

log = logging.getLogger(__name__)
BACKLOG = 2048


def tls_context(config: ControlConfig) -> ssl.SSLContext:
    """Return the server's TLS settings: a client certificate is requested, and may be missing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_settings.apply(context, config.tls_cipher_suites, config.tls_min_version)
    context.load_cert_chain(config.cert_file, config.key_file)
    authorities = (config.client_ca_file, config.requestheader_client_ca_file)
    client_authorities.accept(context, *(file for file in authorities if file is not None))
    context.set_alpn_protocols(["http/1.1"])
    return context


class Listener:
    """One listening socket; `port` is known after `bind` (give 0 to let the kernel choose)."""

    def __init__(self, config: ControlConfig, app: Any) -> None:
        settings = Config(
            app,
            host=config.bind_address,
            port=config.port,
            http=ApiProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
            backlog=BACKLOG,
            proxy_headers=False,
        )
        settings.load()
        settings.loaded_app = app
        for warning in tls_settings.warnings(config.tls_cipher_suites, config.tls_min_version):
            log.warning("%s", warning)
        files = (config.cert_file, config.key_file, config.client_ca_file, config.requestheader_client_ca_file)
        tls = TlsFiles(lambda: tls_context(config), [file for file in files if file is not None])
        tls.current()
        self._config = config
        self._server = BoundedServer(settings, config.serving, tls.current)
        self._sockets: list[socket.socket] = []
        self._ticker: asyncio.Task[None] | None = None

    def bind(self) -> None:
        """Bind the address, without accepting yet; raises OSError if it is in use."""
        self._sockets = [_bind(self._config.bind_address, self._config.port)]

    async def start(self) -> None:
        """Accept connections."""
        await self._server.startup(sockets=self._sockets)
        self._ticker = asyncio.create_task(self._tick(), name="http-date")

    @property
    def table(self) -> ConnectionTable:
        """The connections that there are."""
        return self._server.table

    @property
    def port(self) -> int:
        number: int = self._sockets[0].getsockname()[1]
        return number

    async def _tick(self) -> None:
        # The Date header is made once a second, not once an answer.
        counter = 0
        while True:
            await self._server.on_tick(counter)
            counter = (counter + 10) % 864000
            await asyncio.sleep(1)

    def close(self) -> None:
        """Close the listening socket; connections remain."""
        for listening in self._sockets:
            listening.close()

    async def stop(self) -> None:
        """Stop accepting, let answers under way finish for a while, then close what is left."""
        if self._ticker is not None:
            self._ticker.cancel()
        for server in self._server.servers:
            server.close()
        self.close()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        # Not asyncio.timeout, which raises CancelledError in a task that is being cancelled (Python 3.11.2).
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.shutdown_timeout
        while state.tasks and (left := deadline - loop.time()) > 0:
            await asyncio.wait(set(state.tasks), timeout=left)
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                # A TLS transport of CPython 3.11 that has closed by itself has no protocol left to abort, and says so thus.
                with contextlib.suppress(AttributeError):
                    transport.abort()


def _bind(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address, port))
    except OSError:
        found.close()
        raise
    found.set_inheritable(True)
    return found
