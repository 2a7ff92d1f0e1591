"""Proxies a request to another HTTP server: a container, a Service's endpoint, an extension API server.

Whoever finds the server gives a way to dial it; the answer comes back as a stream, or as the connection itself where the
request requests an upgrade and gets it.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.http import http1, rewrite_links
from control.http.backend_exchange import Dial, exchange
from control.http.exchange import Answer, Header, Request, Response, Stream, Upgrade, forwarded_headers, wants_upgrade
from control.http.protocol import ApiProtocol


async def proxy_request(
    request: Request,
    dial: Dial,
    target: str,
    host: str,
    added: Iterable[Header] = (),
    *,
    rewrites_links: bool = False,
) -> Answer:
    """Send a request on, as `target` of `host`, with its headers but for credentials and with those `added`.

    With `rewrites_links` the links of the response are rewritten to lead through the proxy that the request came to.
    """
    headers = list(added)
    if wants_upgrade(request):

        async def splice(protocol: ApiProtocol) -> Response | None:
            sent = http1.request_head(
                request.method, target, host, forwarded_headers(request), upgrade=True, added=headers
            )
            head, reader, writer = await exchange(request, dial, sent, upgrade=True)
            if head.status != 101:
                return http1.as_response(head, await http1.whole(head, reader, writer, http1.ERROR_LIMIT))
            await http1.splice(protocol, head, reader, writer)
            return None

        return Upgrade(splice)
    length = http1.body_length(request.headers)
    sent = http1.request_head(
        request.method, target, host, forwarded_headers(request), upgrade=False, length=length, added=headers
    )
    head, reader, writer = await exchange(request, dial, sent, body=length != 0)
    if rewrites_links:
        return rewrite_links.rewrite_response(request, head, http1.body_chunks(head, reader, writer), host)
    answer = http1.as_response(head, b"")
    return Stream(http1.body_chunks(head, reader, writer), answer.content_type, head.status, answer.headers)
