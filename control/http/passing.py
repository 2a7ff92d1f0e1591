"""A request passed on to another HTTP server, whatever it is: a container, a Service's endpoint, an extension API server.

Whoever finds the server gives a way to dial it; the answer comes back as a stream, or as the connection itself where the
request asks for an upgrade and gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from control.http import links, relay
from control.http.exchange import Answer, Header, Request, Response, Stream, Upgrade, headers_of, wants_upgrade
from control.http.protocol import ApiProtocol

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def pass_on(
    request: Request,
    dial: Dial,
    target: str,
    host: str,
    max_body: int,
    added: Iterable[Header] = (),
    relinked: bool = False,
) -> Answer:
    """Send a request on, as `target` of `host`, with its headers but for credentials and with those `added`.

    Where the answer is to be `relinked`, its links are made to lead through the proxy that the request came to.
    """
    told = list(added)
    if wants_upgrade(request):

        async def splice(protocol: ApiProtocol) -> Response | None:
            reader, writer = await dial()
            writer.write(relay.request_head(request.method, target, host, headers_of(request), True, added=told))
            try:
                head = await relay.read_head(reader, upgrade=True)
            except BaseException:
                writer.close()
                raise
            if head.status != 101:
                return relay.as_response(head, await relay.whole(head, reader, writer, relay.ERROR_LIMIT))
            await relay.splice(protocol, head, reader, writer)
            return None

        return Upgrade(splice)
    body = await request.body(max_body)
    reader, writer = await dial()
    writer.write(relay.request_head(request.method, target, host, headers_of(request), False, body, told))
    try:
        head = await relay.read_head(reader)
    except BaseException:
        writer.close()
        raise
    if relinked:
        return links.relink(request, head, relay.body_chunks(head, reader, writer), host)
    answer = relay.as_response(head, b"")
    return Stream(relay.body_chunks(head, reader, writer), answer.content_type, head.status, answer.headers)
