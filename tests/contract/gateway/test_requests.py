"""Requests through a gateway: their form at the backend, and the responses to clients."""

from __future__ import annotations

import asyncio

from kube.gateway.model import Filters, HeaderChange, PathChange, Redirect, Rule
from tests.support.gateway_site import BackendServer, Received, backend, gateway, listener, rule, status


async def test_a_request_reaches_the_backend_with_the_clients_headers_and_those_of_the_gateway() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        response = await site.get(
            "/a/b?c=d", "Example.com:80", "X-Mine: 1", "X-Forwarded-For: 9.9.9.9", "X-Real-IP: 9.9.9.9"
        )

        assert status(response) == 200 and response.endswith(b"\r\n\r\nok")
        assert b"\r\ndate: " in response and b"\r\nserver: wherry\r\n" in response
        (received,) = web.requests
        assert received.line == "GET /a/b?c=d HTTP/1.1"
        assert received.header("host") == "Example.com:80"
        assert received.header("x-mine") == "1"
        assert received.header("x-forwarded-for") == "127.0.0.1"
        assert received.header("x-forwarded-host") == "Example.com:80"
        assert received.header("x-forwarded-proto") == "http"
        assert received.header("x-real-ip") is None and received.header("connection") is None


async def test_headers_in_the_spelling_of_cgi_do_not_pretend_to_be_the_gateways() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        await site.get("/", "a", "X_Forwarded_For: 9.9.9.9", "Content_Length: 5", "my_header: kept")

        names = [name for name, _ in web.requests[0].headers]
        assert "x_forwarded_for" not in names and "content_length" not in names and "my_header" in names


async def test_the_connection_header_of_a_client_removes_nothing_of_the_gateways() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        await site.raw(
            b"GET / HTTP/1.1\r\nHost: a\r\nX-Hop: 1\r\nConnection: close, x-hop, x-forwarded-for, host\r\n\r\n"
        )

        assert web.requests[0].header("x-hop") is None
        assert web.requests[0].header("host") == "a" and web.requests[0].header("x-forwarded-for") == "127.0.0.1"


async def test_bodies_are_passed_on_with_their_length_or_in_chunks() -> None:
    def echo(request: Received) -> bytes:
        return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
            len(request.body),
            request.body,
        )

    async with backend(echo) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        body = bytes(range(256)) * 2000
        sized = await site.raw(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)
        )
        assert status(sized) == 200 and web.requests[0].body == body
        assert web.requests[0].header("content-length") == str(len(body))

        half = len(body) // 2
        chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:], b""))
        await site.raw(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunked
        )
        assert web.requests[1].body == body


async def test_a_client_that_waits_for_100_is_told_to_continue_and_backends_are_not_asked() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"abc")
        assert status(await reader.readuntil(b"ok")) == 200
        writer.close()
        assert web.requests[0].body == b"abc" and web.requests[0].header("expect") is None


async def test_connections_are_kept_on_both_sides() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        for _ in range(5):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert status(await reader.readuntil(b"ok")) == 200
        writer.close()
        assert web.connections == 1 and len(web.requests) == 5


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    def name(request: Received) -> bytes:
        path = request.line.split()[1].encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(path), path)

    async with backend(name) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        found = await site.raw(b"".join(b"GET /number-%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(5)))

        places = [found.find(b"/number-%d" % number) for number in range(5)]
        assert places == sorted(places) and places[0] > 0
        assert found.count(b"200 OK") == 5


async def test_responses_without_body_keep_their_length() -> None:
    async with (
        backend(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n") as web,
        gateway(listener(rule()), services={"web": [web.port]}) as site,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        for _ in range(2):
            writer.write(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"content-length: 1000\r\n" in await reader.readuntil(b"\r\n\r\n")
        web.reply = b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n"
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 304 ")
        writer.close()
        assert web.connections == 1


async def test_old_clients_get_a_response_that_ends_with_the_connection() -> None:
    reply = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    async with backend(reply) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        response = await site.raw(b"GET / HTTP/1.0\r\n\r\n")

        assert response.endswith(b"\r\n\r\nabc") and b"chunked" not in response


async def test_filters_change_headers_host_and_path() -> None:
    filters = Filters(
        request=HeaderChange(set=(("X-Set", "s"),), add=(("X-Add", "a"),), remove=("X-Gone",)),
        response=HeaderChange(add=(("X-Reply", "r"),), remove=("server",)),
        hostname="inner.example.com",
        path=PathChange("ReplacePrefixMatch", "/new"),
    )
    reply = b"HTTP/1.1 200 OK\r\nserver: secret\r\ncontent-length: 0\r\n\r\n"
    async with (
        backend(reply) as web,
        gateway(listener(rule("/old", filters=filters)), services={"web": [web.port]}) as site,
    ):
        response = await site.get("/old/page", "a", "X-Set: client", "X-Add: client", "X-Gone: 1")

        (received,) = web.requests
        assert received.line == "GET /new/page HTTP/1.1" and received.header("host") == "inner.example.com"
        assert received.header("x-set") == "s" and received.header("x-gone") is None
        assert [value for name, value in received.headers if name == "x-add"] == ["client", "a"]
        assert b"x-reply: r\r\n" in response and b"secret" not in response


async def test_redirects_name_the_whole_url() -> None:
    redirect = Rule(filters=Filters(redirect=Redirect(scheme="https", status=301)))
    async with gateway(listener(redirect), services={}) as site:
        response = await site.get("/a?b=c", "example.com:8080")

        assert status(response) == 301 and b"location: https://example.com/a?b=c\r\n" in response


async def test_shares_of_backends_hold_for_few_requests() -> None:
    async with backend() as one, backend() as two:
        weighted = rule(service="one", weight=9)
        both = Rule(backends=(*weighted.backends, *rule(service="two").backends))
        services = {"one": [one.port], "two": [two.port]}
        async with gateway(listener(both), services=services) as site:
            for _ in range(50):
                await site.get()

        assert 43 <= len(one.requests) <= 47 and len(two.requests) == 50 - len(one.requests)


async def test_a_websocket_passes_bytes_both_ways_and_ends_with_either_side() -> None:
    ended = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: Upgrade\r\nupgrade: websocket\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello")
        while data := await reader.read(1000):
            writer.write(data)
        ended.set()

    async with backend(handle=echo) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(10) == b"helloearly"
        writer.write(b"x" * 300_000)
        assert await reader.readexactly(300_000) == b"x" * 300_000
        writer.close()
        async with asyncio.timeout(5):
            await ended.wait()


async def test_a_websocket_outlasts_the_timeouts_of_requests() -> None:
    async def slow_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        data = await reader.readexactly(1)
        await asyncio.sleep(0.4)
        writer.write(data)

    async with (
        backend(handle=slow_echo) as web,
        gateway(listener(rule(request_seconds=0.3)), services={"web": [web.port]}) as site,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nx")
        assert status(await reader.readuntil(b"\r\n\r\n")) == 101
        assert await reader.read() == b"x"
        writer.close()


async def test_other_protocols_are_not_upgraded_to() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        response = await site.raw(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"
        )

        assert status(response) == 200
        received: BackendServer = web
        assert received.requests[0].header("upgrade") is None and received.requests[0].header("http2-settings") is None


async def test_routes_change_without_closing_connections() -> None:
    async with backend() as web, gateway(listener(rule("/old")), services={"web": [web.port]}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        for path, expected in ((b"/old", 200), (b"/new", 404)):
            writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
            head = await reader.readuntil(b"\r\n\r\n")
            assert status(head) == expected
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        await site.serve(listener(rule("/new")))
        writer.write(b"GET /new HTTP/1.1\r\nHost: a\r\n\r\n")
        assert status(await reader.readuntil(b"ok")) == 200
        writer.close()


async def test_endpoints_share_the_requests_of_one_client() -> None:
    async with backend() as one, backend() as two:
        async with gateway(listener(rule()), services={"web": [one.port, two.port]}) as site:
            for _ in range(10):
                assert status(await site.get()) == 200
        assert (len(one.requests), len(two.requests)) == (5, 5)


async def test_clients_of_ipv6_are_named_by_their_addresses() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}, address="::1") as site:
        assert status(await site.get("/", f"[::1]:{site.port}")) == 200
        assert web.requests[0].header("x-forwarded-for") == "::1"
        assert web.requests[0].header("host") == f"[::1]:{site.port}"
