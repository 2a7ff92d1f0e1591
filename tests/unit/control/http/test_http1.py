"""Strict parsing of another server's response: nothing of it can become a header of this server."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from control.http import http1
from kube.errors import StatusError
from tests.support.iterations import Iterations


async def read(raw: bytes, upgrade: bool = False) -> http1.Head:
    reader = asyncio.StreamReader(limit=1 << 20)
    reader.feed_data(raw)
    reader.feed_eof()
    return await http1.read_head(reader, upgrade=upgrade)


HEAD = b"HTTP/1.1 403 Forbidden\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"X-A: b\nSet-Cookie: c=d\r\n\r\n",
        HEAD + b"X-A: b\rSet-Cookie: c=d\r\n\r\n",
        HEAD + b"X-A: b\x00c\r\n\r\n",
        HEAD + b"X-A\n: b\r\n\r\n",
        HEAD + b"X A: b\r\n\r\n",
        HEAD + b"X-A : b\r\n\r\n",
        HEAD + b": b\r\n\r\n",
        HEAD + b"X-A: b\r\n folded\r\n\r\n",
        HEAD + b"no colon\r\n\r\n",
        b"HTTP/1.1 403 no\nSet-Cookie: c=d\r\n\r\n",
        b"HTTP/1.1 99 x\r\n\r\n",
        b"HTTP/1.1 600 x\r\n\r\n",
        b"HTTP/1.1 4030 x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + HEAD + b"\r\n",
        HEAD + b"X-A: " + b"b" * http1.HEAD_LIMIT + b"\r\n\r\n",
        b"",
    ],
)
async def test_what_is_no_head_is_a_bad_gateway(raw: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        await read(raw)
    assert caught.value.code == 502


async def test_a_head_is_read_and_what_went_before_it_passed_over() -> None:
    head = await read(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HEAD + b"X-A:  b \r\n\r\n"
    )
    assert (head.status, head.headers, head.raw) == (403, [(b"x-a", b"b")], HEAD + b"X-A:  b \r\n\r\n")
    assert (await read(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", upgrade=True)).status == 101
    assert (await read(HEAD + b"X-A: \xc3\xa9\r\n\r\n")).headers == [(b"x-a", b"\xc3\xa9")]


def test_expect_100_continue_is_not_proxied_with_a_complete_body() -> None:
    sent = http1.request_head("POST", "/", "h", [(b"Expect", b"100-continue"), (b"A", b"b")], upgrade=False, length=1)
    assert b"expect" not in sent.lower() and b"A: b" in sent


def test_a_backend_does_not_let_other_sites_use_this_servers_address() -> None:
    allowed = [
        (f"access-control-allow-{what}".encode(), b"*") for what in ("origin", "credentials", "headers", "methods")
    ]
    head = http1.Head(200, [*allowed, (b"vary", b"Origin"), (b"content-type", b"text/css")], b"")
    answer = http1.as_response(head, b"")
    assert (answer.content_type, answer.headers) == (b"text/css", [(b"vary", b"Origin")])


async def test_small_chunks_that_are_read_at_once_are_one_piece_and_others_have_their_turn() -> None:
    """Whoever answers behind a proxy chooses the sizes of chunks."""
    reader = asyncio.StreamReader()
    reader.feed_data(b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
    reader.feed_eof()
    head = http1.Head(200, [], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    with Iterations() as iterations:
        pieces = [piece async for piece in http1.body_chunks(head, reader, cast(Any, Closing()))]
    reads = -(-len(b"1\r\nx\r\n" * 50_000) // http1.CHUNK)
    assert b"".join(pieces) == b"x" * 50_000
    assert len(pieces) <= reads + 1 and iterations.number >= reads


class Closing:
    """The writing side of a connection that is closed at the end."""

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...
