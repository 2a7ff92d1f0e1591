"""Serves the page on loopback addresses, with limits for other users of the machine, where these can connect (peers.py)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import uvicorn
from starlette.types import ASGIApp

from kube.serving.limits import ServingLimits
from kube.serving.server import BoundedServer
from wherry.ui.protocol import PageProtocol

CONNECTIONS, UNAUTHENTICATED = 64, 32
"""Connections in all, and without the session: a flood of these closes its own oldest ones."""
LIMITS = ServingLimits(
    head_bytes=64 << 10,
    headers=100,
    pipelined=1,
    head_timeout=10.0,
    unauthenticated=UNAUTHENTICATED,
    unauthenticated_per_peer=UNAUTHENTICATED,
    connections=CONNECTIONS,
)
STOP_SECONDS = 2.0


class _Server(BoundedServer):
    """Signals are the command's business, and nothing ticks."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config, LIMITS)
        self.stop = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave the process's signal handlers alone."""
        return nullcontext()

    async def main_loop(self) -> None:
        """Wait to be stopped."""
        await self.stop.wait()


async def serve(
    app: ASGIApp,
    listening: Sequence[socket.socket],
    stop: asyncio.Event,
    admits: Callable[[socket.socket], bool] | None = None,
) -> None:
    """Serve connections that `admits` accepts, on sockets that listen, until `stop` is set, and close them."""
    config = uvicorn.Config(
        app,
        http=PageProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    server.admits = admits
    task = asyncio.create_task(server.serve(list(listening)), name="page")
    stopped = asyncio.create_task(stop.wait(), name="signal")
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        server.stop.set()
        await asyncio.wait({task}, timeout=STOP_SECONDS)
        for each in listening:
            each.close()
    if task.done():
        task.result()
