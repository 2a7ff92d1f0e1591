"""Clients that send ambiguous or endless requests, read nothing, or never leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from kube.serving.table_group import TableGroup
from netproxy.gateway.limits import BACKENDS, CLIENTS
from netproxy.gateway.listening import Place
from tests.support.gateway_site import Site, backend, gateway, listener, read_request, rule, status
from tests.support.ports import reserve

BODY = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def get(*headers: bytes, target: bytes = b"/") -> bytes:
    return b"\r\n".join((b"GET " + target + b" HTTP/1.1", *headers, b"", b""))


AMBIGUOUS = {
    "length and chunks": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    + BODY,
    "chunks and length": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n"
    + BODY,
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n" + BODY,
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 44\r\n\r\n" + BODY,
    "a signed length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\n" + BODY,
    "two codings": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + BODY,
    "chunks twice": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n" + BODY,
    "an unknown coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n" + BODY,
    "a coding with a tab": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n" + BODY,
    "codings in two headers": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n"
    + BODY,
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY,
    "a space before the colon": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 44\r\n\r\n" + BODY,
    "a continued line": get(b"Host: a", b"X-A: b", b" Content-Length: 44"),
    "a line without CR": b"GET / HTTP/1.1\nHost: a\n\n",
    "a CR in a value": get(b"Host: a", b"X-A: b\rX-C: d"),
    "a NUL in a value": get(b"Host: a", b"X-A: b\0"),
    "a name that is no token": get(b"Host: a", b"X(A): b"),
    "a line without colon": get(b"Host: a", b"nothing"),
    "two hosts": get(b"Host: a", b"Host: b"),
    "no host": get(b"X-A: b"),
    "an empty host in the target": get(b"Host: a", target=b"http:///x"),
    "a host with a path": get(b"Host: a/b"),
    "a host with a user": get(b"Host: b@a"),
    "a host with a space": get(b"Host: a b"),
    "a host with two dots": get(b"Host: a..b"),
    "a host with a wrong port": get(b"Host: a:80x"),
    "another scheme": get(b"Host: a", target=b"ftp://a/"),
    "an asterisk": get(b"Host: a", target=b"*"),
    "a relative target": get(b"Host: a", target=b"a/b"),
    "a fragment": get(b"Host: a", target=b"/a#b"),
    "bytes that are no ASCII": get(b"Host: a", target=b"/\xc3\xa4"),
    "an incomplete escape": get(b"Host: a", target=b"/a%4"),
    "a NUL in the path": get(b"Host: a", target=b"/a%00b"),
    "encoded slashes around dots": get(b"Host: a", target=b"/public/..%2fadmin"),
    "encoded dots and slashes": get(b"Host: a", target=b"/public%2f%2e%2e%2fadmin"),
    "backslashes around dots": get(b"Host: a", target=b"/public\\..\\admin"),
    "dots with a parameter": get(b"Host: a", target=b"/public/..;x/admin"),
    "an invalid chunk": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n",
    "a chunk beyond all sizes": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"F" * 17
    + b"\r\n",
    "CONNECT": b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an upgrade with a body": get(b"Host: a", b"Connection: upgrade", b"Upgrade: websocket", b"Content-Length: 44")
    + BODY,
}


@pytest.mark.parametrize("request_bytes", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_an_ambiguous_request_is_refused_and_nothing_behind_it_is_served(request_bytes: bytes) -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        response = await site.raw(request_bytes + get(b"Host: a", target=b"/next"))

        assert not response or status(response) in (400, 405, 501, 505), response
        assert response.count(b"HTTP/1.1 ") <= 1 and not web.requests


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/a/%2e%2e/b", "/b"),
        (b"/a/./b/../c/", "/a/c/"),
        (b"/../../b", "/b"),
        (b"/%61%2Fb%c3%a4", "/a%2Fb%C3%A4"),
        (b"http://Other.example.com/x?y", "/x?y"),
        (b"http://other.example.com", "/"),
        (b"/a//b", "/a//b"),
    ],
)
async def test_the_backend_gets_the_path_that_was_matched(target: bytes, expected: str) -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        assert status(await site.raw(get(b"Host: a", b"Connection: close", target=target))) == 200

        (received,) = web.requests
        assert received.line == f"GET {expected} HTTP/1.1"
        assert received.header("host") == ("a" if target.startswith(b"/") else target.split(b"/")[2].decode())


async def test_heads_have_limits() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        assert status(await site.raw(get(b"Host: a", target=b"/" + b"a" * 20_000))) == 414
        assert status(await site.raw(get(b"Host: a", b"X-A: " + b"a" * 70_000))) == 431
        assert status(await site.raw(get(b"Host: a", *[b"X-%d: a" % number for number in range(200)]))) == 431
        assert not web.requests


async def test_a_request_that_passes_gateways_in_a_circle_ends() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        await site.get("/", "a", "CDN-Loop: other, wherry-gateway")
        assert web.requests[0].header("cdn-loop") == "other, wherry-gateway, wherry-gateway"
        services = {"web": [site.port]}
        async with gateway(listener(rule()), services=services) as looped:
            services["web"] = [looped.port]
            async with gateway(listener(rule()), services=services) as outer:
                response = await site.get("/", "a", "CDN-Loop: " + ", ".join(["wherry-gateway"] * 8))
                assert status(response) == 508 and outer.port != looped.port
                response = await site.get("/", "a", "CDN-Loop: " + ", ".join(["wherry-gateway; v=1"] * 8))
                assert status(response) == 508


async def test_a_request_that_names_very_many_gateways_is_refused() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        assert status(await site.get("/", "a", "CDN-Loop: " + ",".join(["x"] * 64))) == 200
        assert status(await site.raw(get(b"Host: a", b"CDN-Loop: " + b"," * 60_000))) == 431
        assert status(await site.raw(get(b"Host: a", *[b"CDN-Loop: x"] * 65))) == 431
        assert len(web.requests) == 1


SlowClient = Callable[[Site], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def _connect(site: Site, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(data)
    return reader, writer


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
    ],
    ids=["line", "headers", "body"],
)
async def test_a_client_that_stops_in_a_request_loses_its_connection(start: bytes) -> None:
    limits = replace(CLIENTS, head_timeout=0.3, body_window=0.3)
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}, limits=limits) as site:
        reader, writer = await _connect(site, start)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        assert status(await site.get()) == 200


async def test_a_client_that_does_not_read_loses_its_connection_and_frees_that_to_the_backend() -> None:
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"10000\r\n%b\r\n" % bytes(1 << 16))
                await writer.drain()
        except ConnectionError:
            gone.set()

    limits = replace(CLIENTS, send_timeout=0.5)
    async with (
        backend(handle=endless) as web,
        gateway(listener(rule()), services={"web": [web.port]}, limits=limits) as site,
    ):
        _, writer = await _connect(site, get(b"Host: a"))
        async with asyncio.timeout(10):
            await gone.wait()
        writer.close()


async def test_a_silent_websocket_is_closed() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        await reader.read()

    limits = replace(BACKENDS, silence_timeout=0.5)
    async with (
        backend(handle=silent) as web,
        gateway(listener(rule()), services={"web": [web.port]}, backends=limits) as site,
    ):
        reader, writer = await _connect(site, get(b"Host: a", b"Connection: upgrade", b"Upgrade: websocket"))
        async with asyncio.timeout(5):
            assert (await reader.read()).startswith(b"HTTP/1.1 101 ")
        writer.close()


async def test_a_client_that_leaves_frees_its_connection_to_the_backend() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await reader.read()
        left.set()

    async with backend(handle=slow) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        _, writer = await _connect(site, get(b"Host: a"))
        async with asyncio.timeout(5):
            await asked.wait()
            writer.close()
            await left.wait()


async def test_the_clients_of_one_address_have_a_limit() -> None:
    limits = replace(CLIENTS, unauthenticated_per_peer=8)
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}, limits=limits) as site:
        opened = [await _connect(site, b"GET / HTTP/1.1\r\n") for _ in range(20)]
        closed = 0
        for reader, _ in opened[:12]:
            async with asyncio.timeout(5):
                closed += await reader.read() == b""
        assert closed == 12
        assert status(await site.get()) == 200
        for _, writer in opened:
            writer.close()


async def test_a_client_that_reads_only_after_a_refused_upload_finds_the_response() -> None:
    async with gateway(listener(), services={}) as site:
        reader, writer = await _connect(site, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(40):
            writer.write(bytes(100_000))
            await writer.drain()
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            response = await reader.readuntil(b"\r\n\r\n")
        assert status(response) == 404 and b"connection: close" in response
        writer.close()


async def test_requests_of_one_client_at_slow_backends_have_a_limit() -> None:
    asked = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()

    limits = replace(BACKENDS, client=3)
    async with (
        backend(handle=silent) as web,
        gateway(listener(rule()), services={"web": [web.port]}, backends=limits) as site,
    ):
        opened = [await _connect(site, get(b"Host: a")) for _ in range(3)]
        async with asyncio.timeout(5):
            while asked < 3:
                await asyncio.sleep(0.01)
        assert status(await site.get()) == 503
        for _, writer in opened:
            writer.close()


async def test_addresses_that_hold_all_places_of_a_namespace_with_slow_bodies_do_not_exclude_others() -> None:
    async def reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass

    limits = replace(BACKENDS, each=8, client=4)
    upload = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx"
    async with (
        backend(handle=reading) as slow,
        backend() as web,
        gateway(
            listener(rule(), rule("/slow", service="slow")),
            services={"web": [web.port], "slow": [slow.port]},
            backends=limits,
        ) as site,
    ):
        opened = []
        for address in ("127.0.0.2", "127.0.0.3"):
            for _ in range(4):
                opened.append(await asyncio.open_connection("127.0.0.1", site.port, local_addr=(address, 0)))
                opened[-1][1].write(upload)
        async with asyncio.timeout(5):
            while slow.connections < 8:
                await asyncio.sleep(0.01)
        assert status(await site.get()) == 200
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert await opened[0][0].read() == b"", "the oldest upload of the client that has most ends"
        for _, writer in opened:
            writer.close()


async def test_clients_of_one_namespace_do_not_use_up_the_connections_of_the_process() -> None:
    other = Place("127.0.0.1", reserve()[0], False, "other")
    group = TableGroup(8, 1 << 20)
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}, group=group) as site:
        served = site.listening._listeners[site.place]._served
        site.listening.set({site.place: served, other: served})
        flood = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(20)]
        writers = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
            writers.append(writer)
            writer.write(b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
            assert status(await asyncio.wait_for(reader.readuntil(b"ok"), 5)) == 200
        assert group.connections <= 8
        for writer in [*writers, *(each for _, each in flood)]:
            writer.close()
