"""Rewrites links in proxied responses: an address that begins at the server's root leads through the proxy again.

A page of a pod that says href="/page" means the pod's own root, while a browser behind `.../pods/web/proxy/` would ask the API
server for /page. So the path of the proxy is put before such addresses, in Location headers and in the attributes of HTML
that hold addresses. Relative ones and those of other hosts stay. The page passes in pieces (`html_page.py`).
Upstream: apimachinery, util/proxy/transport.go.
"""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import AsyncIterator
from urllib.parse import quote, urlunsplit

from control.event_loop.pacing import yield_to_loop
from control.http import http1
from control.http.chunks import Chunks, close
from control.http.exchange import Request, Response, Stream
from control.http.html_page import Page
from kube import errors, urls

MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes that a compressed page may unpack to. zlib makes a thousand of one."""
PIECE = 4 * 1024
"""Bytes of a page that are unpacked and rewritten at a turn: if they are nothing but addresses, that takes milliseconds."""


def prefix_of(request: Request) -> str:
    """Return the path of the proxy subresource that a request goes through, without what follows it.

    It has one slash at the beginning and between parts, as the path is read: two at the beginning would name a host.
    """
    parts = [part for part in request.path.split("/") if part]
    return quote("/" + "/".join(parts[: 7 if request.info.namespace else 5]), safe="/:@!$&'()*+,;=~")


def to_the_root(request: Request) -> Response | None:
    """Redirect a request for the proxy itself without a slash at the end: relative links would be wrong otherwise."""
    if request.method not in ("GET", "HEAD") or request.info.rest or request.path.endswith("/"):
        return None
    query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
    location = f"{prefix_of(request)}/{query}".encode("latin-1")
    return Response(301, b"", b"text/plain; charset=utf-8", [(b"location", location)])


def rewrite_link(url: str, prefix: str, backend: str, asked: str) -> str:
    """Return an address as it is reached through the proxy at `prefix`; `backend` and `asked` are the hosts of either side."""
    try:
        scheme, host, path, query, fragment = urls.split(url)
    except ValueError:
        return url
    if (host and host != backend) or not path.startswith("/"):
        return url
    if not (host and host == asked):
        scheme = host = ""
    if not path.startswith(prefix):
        path = posixpath.normpath(prefix + path) + ("/" if path.endswith("/") else "")
    return urlunsplit((scheme, host, path, query, fragment))


def rewrite_response(request: Request, head: http1.Head, chunks: AsyncIterator[bytes], backend: str) -> Stream:
    """Make the answer of the server behind a proxy, whose body comes in `chunks`, with links that lead through the proxy."""
    answer = http1.as_response(head, b"")
    prefix, asked = prefix_of(request), request.headers.get(b"host", b"").decode("latin-1")
    headers = [
        (name, rewrite_link(value.decode("latin-1"), prefix, backend, asked).encode("latin-1"))
        if name == b"location"
        else (name, value)
        for name, value in answer.headers
    ]
    if answer.content_type.split(b";")[0].strip().lower() != b"text/html" or request.method == "HEAD":
        return Stream(chunks, answer.content_type, head.status, headers)
    coding = dict(headers).get(b"content-encoding", b"").lower()
    if coding not in (b"", b"gzip", b"deflate"):
        return Stream(chunks, answer.content_type, head.status, headers)
    if coding:
        chunks = _closing(unpacked(chunks), chunks)
        headers = [header for header in headers if header[0] != b"content-encoding"]
    pages = _closing(_pages(chunks, prefix, backend, asked), chunks)
    return Stream(pages, answer.content_type, head.status, headers)


def _closing(made: AsyncIterator[bytes], of: AsyncIterator[bytes]) -> Chunks:
    """Return chunks that are made of others, which are closed with them."""
    return Chunks(lambda _: made, lambda: close(of))


async def unpacked(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a compressed body unpacked, in pieces of a bounded size; raises 502 for what cannot be, or is too much."""
    unpack, total = zlib.decompressobj(wbits=47), 0  # gzip or zlib, as its head says
    async for chunk in chunks:
        while chunk and not unpack.eof:
            try:
                piece = unpack.decompress(chunk, PIECE)
            except zlib.error as error:
                raise _bad_gateway() from error
            chunk = unpack.unconsumed_tail
            total += len(piece)
            if total > MOST_UNPACKED:
                raise _bad_gateway()
            yield piece
    if rest := unpack.flush():
        yield rest


def _bad_gateway() -> errors.StatusError:
    return errors.StatusError(502, "", "the page behind the proxy could not be unpacked, or is too large")


async def _pages(chunks: AsyncIterator[bytes], prefix: str, backend: str, asked: str) -> AsyncIterator[bytes]:
    page = Page(lambda url: rewrite_link(url, prefix, backend, asked))
    async for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            await yield_to_loop()
            if done := page.feed(chunk[start : start + PIECE]):
                yield done
    if rest := page.end():
        yield rest
