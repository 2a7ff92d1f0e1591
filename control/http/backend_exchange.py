"""One request to another HTTP server: it ends with the client that requested it, and its body is passed on as it comes.

Nothing of a body is kept but what the backend's connection has not taken yet. A backend that takes nothing for `STALL_SECONDS`
is closed; one that does not answer is waited for as long as the client waits, as upstream does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from control.http import http1
from control.http.exchange import Request
from kube import errors

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Connects to the backend."""
T = TypeVar("T")
STALL_SECONDS = 60.0


class Exchange(NamedTuple):
    """A backend's answer so far: its head, and the connection that brings the rest."""

    head: http1.Head
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def exchange(request: Request, dial: Dial, head: bytes, *, upgrade: bool = False, body: bool = False) -> Exchange:
    """Send a head, and the request's `body` where it is to be passed on, and return the answer's head.

    Raises what `dial` raises, 502 for an answer that is no HTTP, and 400 where the client has left meanwhile.
    """
    opened: list[asyncio.StreamWriter] = []
    try:
        return await _while_connected(request, _exchange(request, dial, head, opened, upgrade=upgrade, body=body))
    except BaseException:
        for writer in opened:
            writer.close()  # also if the answer came in the iteration in which its request was cancelled
        raise


async def _exchange(
    request: Request, dial: Dial, head: bytes, opened: list[asyncio.StreamWriter], *, upgrade: bool, body: bool
) -> Exchange:
    reader, writer = await dial()
    opened.append(writer)
    writer.write(head)
    if not body:
        return Exchange(await http1.read_head(reader, upgrade=upgrade), reader, writer)
    answered = asyncio.ensure_future(http1.read_head(reader))
    sending = asyncio.ensure_future(_send_body(request, writer))
    try:
        await asyncio.wait((answered, sending), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done() or (answered.exception() is None and answered.result().status < 400):
            await sending  # one that refuses need not read on
        return Exchange(await answered, reader, writer)
    finally:
        for task in (answered, sending):
            task.cancel()
        await asyncio.gather(answered, sending, return_exceptions=True)


async def _send_body(request: Request, writer: asyncio.StreamWriter) -> None:
    chunked = b"transfer-encoding" in request.headers
    async for part in request.parts():
        writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await writer.drain()
        except TimeoutError as error:
            raise errors.StatusError(504, "Timeout", "the backend does not read the request") from error
        except OSError:
            return  # it has closed the connection; its answer, if there is one, says why
    if chunked:
        writer.write(b"0\r\n\r\n")


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do work for a client, and end it when the client closes its connection."""
    task, left = asyncio.ensure_future(work), asyncio.ensure_future(request.until_left())
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise errors.bad_request("the client went away in the middle of its request")
    finally:
        for each in (task, left):
            each.cancel()
        await asyncio.gather(task, left, return_exceptions=True)
