"""A request passed on to another HTTP server, whatever it is: a container, a Service's endpoint, an extension API server.

Whoever finds the server gives a way to dial it; the answer comes back as a stream, or as the connection itself where the
request asks for an upgrade and gets it.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.http import links, relay
from control.http.backend_exchange import Dial, exchange
from control.http.exchange import Answer, Header, Request, Response, Stream, Upgrade, headers_of, wants_upgrade
from control.http.protocol import ApiProtocol


async def pass_on(
    request: Request,
    dial: Dial,
    target: str,
    host: str,
    added: Iterable[Header] = (),
    relinked: bool = False,
) -> Answer:
    """Send a request on, as `target` of `host`, with its headers but for credentials and with those `added`.

    Where the answer is to be `relinked`, its links are made to lead through the proxy that the request came to.
    """
    told = list(added)
    if wants_upgrade(request):

        async def splice(protocol: ApiProtocol) -> Response | None:
            sent = relay.request_head(request.method, target, host, headers_of(request), True, added=told)
            head, reader, writer = await exchange(request, dial, sent, upgrade=True)
            if head.status != 101:
                return relay.as_response(head, await relay.whole(head, reader, writer, relay.ERROR_LIMIT))
            await relay.splice(protocol, head, reader, writer)
            return None

        return Upgrade(splice)
    length = relay.body_length(request.headers)
    sent = relay.request_head(request.method, target, host, headers_of(request), False, length, told)
    head, reader, writer = await exchange(request, dial, sent, body=length != 0)
    if relinked:
        return links.relink(request, head, relay.body_chunks(head, reader, writer), host)
    answer = relay.as_response(head, b"")
    return Stream(relay.body_chunks(head, reader, writer), answer.content_type, head.status, answer.headers)
