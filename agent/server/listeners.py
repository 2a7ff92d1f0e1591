"""Serves the kubelet's API on two sockets: TLS for all of it, plain HTTP on loopback for health alone."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

from agent.kubelet_configuration import ConfigError
from agent.server.protocol import AgentProtocol
from agent.server.sessions import answer
from kube import client_authorities, tls_settings
from kube.serving.limits import ServingLimits
from kube.serving.protocol import BoundedProtocol
from kube.serving.server import BoundedServer
from kube.serving.uvicorn_modules import Config
from kube.tls_files import TlsFiles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Address, files and TLS settings of the server (by the names of kube.tls_settings)."""

    address: str
    port: int
    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    cipher_suites: tuple[str, ...] = ()
    min_version: str = "VersionTLS12"
    limits: ServingLimits = field(default_factory=ServingLimits)


def settings(app: Any, **more: Any) -> Config:
    """Return uvicorn's settings for the kubelet's port, for connections that it accepts or is given."""
    return Config(
        app,
        http=AgentProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        **more,
    )


async def serve(app: Any, listener: Listener, started: Callable[[int], None] | None = None) -> None:
    """Serve until cancelled; `started` is called with the port once connections are accepted. Raise ConfigError."""
    config = settings(app, timeout_graceful_shutdown=1)
    for warning in tls_settings.warnings(listener.cipher_suites, listener.min_version):
        log.warning("%s", warning)
    given = (listener.cert_file, listener.key_file, listener.client_ca_file)
    files = [file for file in given if file is not None]
    tls = TlsFiles(lambda: tls_context(listener), files)
    try:
        tls.current()
    except (OSError, ValueError) as error:
        names = ", ".join(f'"{file}"' for file in dict.fromkeys(files))
        remedy = "replace them, or remove those that the agent created (kubelet.crt and kubelet.key)"
        raise ConfigError(f"cannot serve the kubelet API with the TLS files {names}: {error}; {remedy}") from error
    await _run(config, listener.address, listener.port, started, listener.limits, tls.current)


def tls_context(listener: Listener) -> ssl.SSLContext:
    """Return a listener's TLS settings: with a client CA, clients are requested to send a certificate, which may be missing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_settings.apply(context, listener.cipher_suites, listener.min_version)
    context.load_cert_chain(listener.cert_file, listener.key_file)
    if listener.client_ca_file is not None:
        client_authorities.accept(context, listener.client_ca_file)
    return context


async def serve_health(
    health: Callable[[], str],
    address: str,
    port: int,
    started: Callable[[int], None] | None = None,
    limits: ServingLimits | None = None,
) -> None:
    """Serve /healthz without TLS until cancelled."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].split("/")[1] != "healthz":
            await answer(send, 404, "404 page not found\n")
            return
        why = health()
        await answer(send, 500 if why else 200, f"healthz check failed: {why}\n" if why else "ok")

    config = Config(
        app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False, date_header=False
    )
    await _run(config, address, port, started, limits)


class _Server(BoundedServer):
    """A server among others in one process: signals are the process's business, and nothing ticks."""

    def __init__(self, config: Config, limits: ServingLimits, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        super().__init__(config, limits, tls)
        self.stop = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave the process's signal handlers alone."""
        return nullcontext()

    async def main_loop(self) -> None:
        """Wait to be stopped."""
        await self.stop.wait()


async def _run(
    config: Config,
    address: str,
    port: int,
    started: Callable[[int], None] | None,
    limits: ServingLimits | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.create_server((address, port), family=family, dualstack_ipv6=address == "::", backlog=128)
    server = _Server(config, limits or ServingLimits(), tls)
    task = asyncio.create_task(server.serve([listening]), name=f"server {address}:{port}")
    try:
        if started is not None:
            started(listening.getsockname()[1])
        await asyncio.shield(task)
    finally:
        server.stop.set()
        await asyncio.wait({task}, timeout=5)
        listening.close()
