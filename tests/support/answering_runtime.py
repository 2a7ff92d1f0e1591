"""A runtime of which one method answers, over a socket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio


@contextlib.asynccontextmanager
async def answering_runtime(
    folder: Path, method: str, request: Any, answer: Callable[[Any, Any], Awaitable[bytes]]
) -> AsyncIterator[str]:
    """Serve a method of the CRI's RuntimeService, whose messages may have any size; yields the socket's path."""
    handler = grpc.unary_unary_rpc_method_handler(answer, request_deserializer=request.FromString)
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", {method: handler}),)
    )
    server.add_insecure_port(f"unix://{folder}/s")
    await server.start()
    try:
        yield f"{folder}/s"
    finally:
        await server.stop(None)
