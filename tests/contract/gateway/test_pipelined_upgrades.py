"""Upgrades behind other requests on a connection: each request is forwarded by its own headers alone."""

from __future__ import annotations

import pytest

from tests.support.gateway_site import OK, Received, backend, gateway, listener, rule, status

INNER = b"GET /admin HTTP/1.1\r\nHost: internal\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"
IN_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER)
LENGTH = b"Content-Length: %d" % len(INNER)
UPGRADE = b"GET /public/b HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


def get(*headers: bytes, path: bytes = b"/public/a", body: bytes = b"") -> bytes:
    return b"\r\n".join((b"GET " + path + b" HTTP/1.1", b"Host: a", *headers, b"", body))


def named(request: Received) -> bytes:
    """Return a response that names the request's path."""
    text = request.line.split()[1].encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)


@pytest.mark.parametrize(
    "first",
    [
        get(b"Upgrade: websocket", LENGTH, body=INNER),
        get(b"Upgrade: websocket", b"Connection: keep-alive", LENGTH, body=INNER),
        get(b"Upgrade: websocket", b"Connection: xupgrade", LENGTH, body=INNER),
        get(b"Upgrade: websocket", b"Transfer-Encoding: chunked", body=IN_CHUNKS),
    ],
    ids=["length", "another connection option", "part of a connection option", "chunks"],
)
@pytest.mark.parametrize(
    "last",
    [
        UPGRADE,
        UPGRADE.replace(b"/public/b", b"/none"),
        UPGRADE.replace(b"websocket", b"h2c"),
        b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
    ],
    ids=["websocket", "no route", "another protocol", "CONNECT"],
)
async def test_a_body_is_no_request_when_an_upgrade_follows_it(first: bytes, last: bytes) -> None:
    async with backend(named) as web, gateway(listener(rule("/public")), services={"web": [web.port]}) as site:
        received = await site.raw(first + last)
        victim = await site.get("/public/victim")

        assert web.requests[0].line == "GET /public/a HTTP/1.1" and web.requests[0].body == INNER
        assert web.requests[0].header("upgrade") is None and web.requests[0].header("connection") is None
        lines = [each.line.split()[1] for each in web.requests]
        assert lines in (["/public/a", "/public/victim"], ["/public/a", "/public/b", "/public/victim"])
        assert status(received) == 200 and b"/admin" not in received
        assert status(victim) == 200 and victim.endswith(b"\r\n\r\n/public/victim")


async def test_a_connection_on_which_an_upgrade_was_ignored_is_not_used_again() -> None:
    async with backend(named) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        for path in ("/1", "/2"):
            assert (await site.raw(UPGRADE.replace(b"/public/b", path.encode()))).endswith(path.encode())
        assert (await site.get("/3")).endswith(b"/3")

        assert [each.header("upgrade") for each in web.requests] == ["websocket", "websocket", None]
        assert web.connections == 3


@pytest.mark.parametrize(
    "headers",
    [
        (b"Upgrade: websocket",),
        (b"Proxy-Connection: upgrade", b"Upgrade: websocket"),
        (b"Connection: xupgrade", b"Upgrade: websocket"),
        (b"Connection: upgrade", b"Upgrade: websocket", b"Upgrade: h2c"),
    ],
)
async def test_an_upgrade_needs_a_connection_option_and_one_protocol(headers: tuple[bytes, ...]) -> None:
    async with backend(OK) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        assert status(await site.raw(get(*headers))) == 200
        assert web.requests[0].header("upgrade") is None
