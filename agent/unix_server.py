"""A gRPC service on a unix socket that imports its protobuf messages at the first call.

So an agent without callers does not load the protocol. A path longer than the kernel accepts for a socket (107 bytes) is
bound through the directory's descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

Handler = Callable[[bytes, Any], Awaitable[bytes]]
"""Answers one call: the request's bytes and gRPC's context, in; the answer's bytes, out."""
_LONGEST = 100


class UnixServer:
    """Serves one service while the context is open."""

    def __init__(self, socket: Path, service: str, methods: Mapping[str, Handler]) -> None:
        self._socket, self._service, self._methods = socket, service, methods
        self._server: grpc.aio.Server | None = None
        self._folder: int | None = None

    async def __aenter__(self) -> UnixServer:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        await asyncio.to_thread(self._make_way)
        path = str(self._socket)
        if len(path) > _LONGEST:
            self._folder = os.open(self._socket.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{self._folder}/{self._socket.name}"
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in self._methods.items()}
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self._service, handlers),))
        self._server.add_insecure_port(f"unix://{path}")
        await self._server.start()

    def _make_way(self) -> None:
        self._socket.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        with contextlib.suppress(FileNotFoundError):
            self._socket.unlink()

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None
