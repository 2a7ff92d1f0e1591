"""The same requests over TLS on a real socket, byte by byte, because a transport in between might change them."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from control.auth.user import UserInfo
from tests.support.authorised.recording import CURRENT, Record
from tests.support.authorised.world import Sent, World

_KEPT_BACK = ("connection", "content-length", "authorization", "host")
SECONDS = 10


class Refused(Exception):
    """The server's HTTP parser did not take the request: nothing was asked and nothing done."""


def over_sockets(world: World) -> None:
    """Let a world's requests go through its listener from now on."""
    answer, begun = world.api.pipeline.answer, _Begun()

    async def recorded(request: Any, credentials: Any, user: UserInfo | None = None) -> Any:
        CURRENT.set(begun.record)  # until the end of the request's task, which the edge goes on in
        begun.reached = True
        return await answer(request, credentials, user)

    world.api.pipeline.answer = recorded  # type: ignore[method-assign]

    async def send(
        method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes, user: UserInfo
    ) -> Sent:
        world.users[user.name] = user
        begun.record, begun.reached = CURRENT.get(), False
        upgrades = any(name == b"upgrade" for name, _ in headers)
        lines = [b"%s %s HTTP/1.1" % (method.encode(), target(path, query)), b"host: localhost"]
        lines += [b"%s: %s" % (name, value) for name, value in headers if name.decode() not in _KEPT_BACK]
        lines += [b"authorization: Bearer " + user.name.encode(), b"content-length: %d" % len(body)]
        lines.append(b"connection: Upgrade" if upgrades else b"connection: close")
        work = _exchange(world, b"\r\n".join(lines) + b"\r\n\r\n" + body)
        whole = await asyncio.create_task(work, context=contextvars.Context())
        if not begun.reached:
            raise Refused(whole[:80])
        head, _, rest = whole.partition(b"\r\n\r\n")
        return Sent(int(head.split(b" ", 2)[1]), rest, head)

    world.send = send  # type: ignore[method-assign]


class _Begun:
    """The request that is under way."""

    record: Record | None = None
    reached = False


def target(path: str, query: str) -> bytes:
    return (f"{path}?{query}" if query else path).encode("latin-1")


async def _exchange(world: World, request: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes, or falls silent after an answer."""
    port, found = world.api.listener.port, b""
    context = world.under_test.tls()
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        try:
            writer.write(request)
            while data := await reader.read(1 << 16):
                found += data
        finally:
            writer.close()
    return found
