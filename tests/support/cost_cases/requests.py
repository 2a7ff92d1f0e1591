"""Heads of requests, and pages and packed bodies that come back through a proxy."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable

from control.http import html_page, negotiate, rewrite_links
from control.interfaces import requestinfo
from tests.support.cost import Case
from tests.support.cost_cases.inputs import HEAD, OBJECT, cases, fill

ACCEPTS: dict[str, Callable[[int], str]] = {
    "types": fill("a/b,"),
    "parameters": fill(";a=b", "application/json"),
    "qualities": fill("a/b;q=0.1,"),
    "a long quality": fill("9", "a/b;q="),
    "commas": fill(","),
    "spaces": fill(" ", "a/b", ";q=1"),
}
PATHS: dict[str, Callable[[int], str]] = {
    "segments": fill("/a", "/api/v1"),
    "slashes": fill("/", "/api/v1"),
    "a long segment": fill("a", "/api/v1/"),
}

# -- pages behind a proxy -----------------------------------------------------------------------------------------------
PAGES: dict[str, Callable[[int], bytes]] = {
    "open tags": fill(b"<a "),
    "brackets": fill(b"<"),
    "bracket and letter": fill(b"<a"),
    "comments": fill(b"<!---->"),
    "open comments": fill(b"<!--"),
    "scripts": fill(b"<script></script>"),
    "open scripts": fill(b"<script>"),
    "nearly the end of a script": fill(b"</scrip", "<script>"),
    "an open quote in each tag": fill(b"<a b='"),
    "quotes": fill(b"'\"", "<a "),
    "a long tag": fill(b" a=b", "<a", ">"),
    "names of attributes": fill(b"a", "<a ", ">"),
    "attributes without a value": fill(b" a", "<a", ">"),
    "spaces in a tag": fill(b" ", "<a b", "=c>"),
    "equals in a tag": fill(b"=", "<a b", ">"),
    "links": fill(b"<a href=/x>"),
    "a long address": fill(b"/x", "<a href='", "'>"),
    "addresses with references": fill(b"<a href='&#x2f;&amp;'>"),
    "a long reference": fill(b"1", "<a href='/&#", ";'>"),
    "dots in an address": fill(b"/..", "<a href='", "'>"),
    "tags at the limit": fill(b"<a b='" + b"c" * 1000 + b"'>"),
}


def page(step: int) -> Callable[[bytes], object]:
    """Pass a page in pieces."""

    def read(text: bytes) -> object:
        on_its_way = html_page.Page(
            lambda url: rewrite_links.rewrite_link(url, "/api/v1/namespaces/n/pods/p/proxy", "b:80", "a:6443")
        )
        return sum(len(on_its_way.feed(text[at : at + step])) for at in range(0, len(text), step)) + len(
            on_its_way.end()
        )

    return read


def unpack(packed: bytes) -> object:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(packed), 16384):
            yield packed[at : at + 16384]

    async def whole() -> int:
        return sum([len(piece) async for piece in rewrite_links.unpacked(chunks())])

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(whole())
    finally:
        loop.close()


CASES = [
    *cases("Accept", ACCEPTS, negotiate.negotiate.__wrapped__, largest=HEAD),
    *cases("path", PATHS, lambda path: requestinfo.parse_path.__wrapped__("GET", path), largest=HEAD),
    *cases("page in pieces of 65536", PAGES, page(1 << 16)),
    *cases("page in pieces of 1000", PAGES, page(1000)),
    *cases("page byte by byte", PAGES, page(1), largest=OBJECT // 2),
    Case("gzip", lambda size: zlib.compress(bytes(size * 20), 9), unpack),
    Case("gzip of noise", lambda size: zlib.compress(bytes(range(256)) * (size // 256), 0), unpack),
]
