"""Terminals: commands in containers, with the visitor's rights. The only thing by which the page changes something.

A browser's WebSocket has no headers of the page's own, so the session's token comes as a subprotocol; its Origin is required,
since browsers let every site open WebSockets. Messages are those of Kubernetes' v5.channel.k8s.io, passed on both ways. A
browser keeps all messages that its page has not processed yet, so the page reports what it has processed, and the server sends
only so much beyond that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from websockets.frames import Opcode

from kube.client import Client
from kube.errors import StatusError
from kube.retry_after import RetryAfterTransport
from kube.serving import websocket
from kube.serving.websocket import ServerSocket
from wherry.ui import failures
from wherry.ui.computing import names
from wherry.ui.places import Places
from wherry.ui.protocol import connection_of, identify
from wherry.ui.session import Session

SUBPROTOCOL, TOKEN = "wherry.terminal", "wherry.token."
"""Subprotocols of the page: the one that is spoken, and one that carries the session's token."""
CHANNELS = "v5.channel.k8s.io"
ERROR = 3
FROM_BROWSER = (0, 4, 255)
"""Channels of the browser's messages: input, the size of the window, the end of input."""
SEEN = 254
"""Channel of the browser's messages that say, in decimal digits, how many more bytes the page has processed."""
MOST_UNSEEN = 1 << 20
MOST_WORDS, LONGEST_WORD = 32, 1024
MOST_BYTES = 4 << 20
"""Bytes of a message of the API server."""
MOST_FROM_BROWSER = 64 << 10
"""Bytes of a message of the browser."""
GOODBYE = 10.0
"""Seconds that a browser has to take what is on its way, and to answer the close."""
AT_A_TIME = 4
_CONTAINER = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


class _WithSockets(Protocol):
    def socket(
        self, path: str, subprotocol: str, *, most_bytes: int
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]: ...


class _Window:
    """Bytes that were sent and that the page has not processed yet."""

    def __init__(self) -> None:
        self._unseen, self._fell = 0, asyncio.Event()

    async def sent(self, size: int) -> None:
        """Count what was sent, and wait until more may be sent."""
        self._unseen += size
        while self._unseen > MOST_UNSEEN:
            self._fell.clear()
            await self._fell.wait()

    def seen(self, text: bytes) -> None:
        """Take a message of the page about what it has processed; others than numbers say nothing."""
        if text.isdigit() and len(text) < 10:
            self._unseen = max(0, self._unseen - int(text))
            self._fell.set()


class Terminals:
    """An ASGI application for the requests of terminals."""

    def __init__(self, client: Client, session: Session, cookie: str, stop: asyncio.Event) -> None:
        self._client, self._session, self._cookie, self._stop = client, session, cookie, stop
        self._places = Places(AT_A_TIME, "terminals")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        protocol = connection_of(scope)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        offered = websocket.offered(headers)
        token = next((each[len(TOKEN) :] for each in offered if each.startswith(TOKEN)), "")
        # The guard refuses other origins than the page's own; here there has to be one.
        if protocol is None or SUBPROTOCOL not in offered or "origin" not in request.headers:
            raise StatusError(400, "BadRequest", "a terminal is a WebSocket that the page opens")
        if not self._session.valid(request.cookies.get(self._cookie, ""), token):
            raise failures.NoSession("this browser has no session")
        identify(scope)
        path = exec_path(request)
        with self._places.one():
            handshake = websocket.answer(headers, SUBPROTOCOL, MOST_FROM_BROWSER)
            if handshake.failure:
                raise StatusError(400, "BadRequest", "this is no handshake of a WebSocket")
            socket = ServerSocket(protocol, handshake)
            try:
                await self._run(socket, path)
            finally:
                await socket.close(GOODBYE)

    async def _run(self, socket: ServerSocket, path: str) -> None:
        transport = self._client.transport
        inner = transport.inner if isinstance(transport, RetryAfterTransport) else transport
        opener: _WithSockets = inner  # type: ignore[assignment]
        try:
            async with opener.socket(path, CHANNELS, most_bytes=MOST_BYTES) as server:
                await self._splice(socket, server)
        except StatusError as error:
            shown = failures.of_server(error)
            with contextlib.suppress(ConnectionResetError):
                await socket.send(bytes([ERROR]) + json.dumps({"status": "Failure", "message": shown.message}).encode())

    async def _splice(self, socket: ServerSocket, server: aiohttp.ClientWebSocketResponse) -> None:
        """Pass messages on until one side, or the page's server, ends."""
        window = _Window()
        tasks = {
            asyncio.create_task(_up(socket, server, window), name="terminal input"),
            asyncio.create_task(_down(socket, server, window), name="terminal output"),
            asyncio.create_task(self._stop.wait(), name="end of a terminal"),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _up(socket: ServerSocket, server: aiohttp.ClientWebSocketResponse, window: _Window) -> None:
    """Pass messages of the browser on; one in several frames, or a text, ends the terminal."""
    while (frame := await socket.receive()) is not None and frame.opcode is Opcode.BINARY and frame.fin:
        message = bytes(frame.data)
        if message[:1] == bytes([SEEN]):
            window.seen(message[1:])
            continue
        if not message or message[0] not in FROM_BROWSER:
            return
        await server.send_bytes(message)


async def _down(socket: ServerSocket, server: aiohttp.ClientWebSocketResponse, window: _Window) -> None:
    async for message in server:
        if message.type is not aiohttp.WSMsgType.BINARY:
            return
        await socket.send(message.data)
        await window.sent(len(message.data))


def exec_path(request: Request) -> str:
    """Return the path and the query of the API for a terminal. Raise StatusError 400."""
    namespace, name = names(request, "namespace", "name")
    container = request.query_params.get("container", "")
    command = request.query_params.getlist("command")
    if not _CONTAINER.fullmatch(container):
        raise StatusError(400, "BadRequest", "name a container")
    if not 0 < len(command) <= MOST_WORDS or any(not 0 < len(each) <= LONGEST_WORD for each in command):
        raise StatusError(
            400, "BadRequest", f"a command has 1 to {MOST_WORDS} words of at most {LONGEST_WORD} characters"
        )
    streams: Mapping[str, str] = {"stdin": "true", "stdout": "true", "tty": "true"}
    query = urlencode([("container", container), *streams.items(), *(("command", each) for each in command)])
    return f"/api/v1/namespaces/{namespace}/pods/{name}/exec?{query}"
