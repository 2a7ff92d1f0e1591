"""An answer that comes in pieces as the messages of a WebSocket, for clients that request a pod's log that way.

Each piece is one message: bytes under `binary.k8s.io` and without a subprotocol, base64 text under `base64.binary.k8s.io`.
What the client says is read for its pings and its goodbye alone. Upstream: apimachinery, httpstream/wsstream/stream.go.
"""

from __future__ import annotations

import asyncio
import base64

import msgspec

from control.http.exchange import Request, Response, Stream, Upgrade
from control.http.protocol import ApiProtocol
from kube.serving import websocket
from kube.serving.frames import SessionYield
from kube.serving.websocket import Handshake, ServerSocket

_BINARY, _TEXT = "binary.k8s.io", "base64.binary.k8s.io"
_MOST_FROM_CLIENT = 64 << 10
"""Bytes of a client's message, of which none is used: an unfinished frame is held whole."""
_GOODBYE = 1.0
"""Seconds that a client has to answer the close."""


class AcceptedHandshake(msgspec.Struct):
    """The handshake of a WebSocket, and the subprotocol that was agreed on."""

    handshake: Handshake
    subprotocol: str


def accept_handshake(request: Request) -> AcceptedHandshake | Response:
    """Accept the handshake of a WebSocket request, or return a 400. To be called before anything is opened for the request."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.items()]
    offered = websocket.offered(headers)
    chosen = next((name for name in offered if name in (_BINARY, _TEXT)), "")
    handshake = websocket.answer(headers, chosen, _MOST_FROM_CLIENT)
    if handshake.failure or (offered and not chosen):
        refusal = b"the WebSocket's handshake cannot be answered\n"
        # The client may have begun to send frames: nothing after this can be a request.
        return Response(400, refusal, b"text/plain; charset=utf-8", [(b"connection", b"close")])
    return AcceptedHandshake(handshake, chosen)


def over_socket(accepted: AcceptedHandshake, stream: Stream, session_yield: SessionYield) -> Upgrade:
    """Give a stream's chunks to the client of a WebSocket, and close it at their end.

    `session_yield` is what sessions share that leave the event loop to each other.
    """
    text = accepted.subprotocol == _TEXT

    async def splice(protocol: ApiProtocol) -> Response | None:
        socket = ServerSocket(protocol, accepted.handshake, session_yield)

        async def send() -> None:
            async for chunk in stream.chunks:
                await socket.send(base64.b64encode(chunk) if text else chunk, text=text)

        async def receive() -> None:
            while await socket.receive() is not None:
                pass

        tasks = [
            asyncio.create_task(send(), name="socket-stream"),
            asyncio.create_task(receive(), name="socket-from-client"),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await socket.close(_GOODBYE)  # a close is answered before the connection ends
        return None

    return Upgrade(splice, stream)
