"""Backends that send what is no response, too much, too little, too early or nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest

from netproxy.gateway.limits import BACKENDS
from netproxy.gateway.response_parser import ResponseParser
from tests.support.gateway_site import OK, backend, gateway, listener, read_request, rule, status
from tests.support.iterations import Iterations
from tests.support.ports import reserve

HEAD = b"HTTP/1.1 200 OK\r\n"
INVALID = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "an endless head": HEAD + b"x-a: " + b"a" * 100_000,
    "too many headers": HEAD
    + b"".join(b"x-%d: a\r\n" % number for number in range(1000))
    + b"content-length: 0\r\n\r\n",
    "length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nabc",
    "another coding": HEAD + b"transfer-encoding: gzip\r\n\r\nabc",
    "a flood of 1xx": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + OK,
    "an upgrade that nobody requested": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "a NUL in a value": HEAD + b"x-a: a\0b\r\ncontent-length: 0\r\n\r\n",
    "a CR in a value": HEAD + b"x-a: a\rx-b: c\r\ncontent-length: 0\r\n\r\n",
    "a name with a space": HEAD + b"x a: b\r\ncontent-length: 0\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("reply", INVALID.values(), ids=INVALID.keys())
async def test_what_is_no_valid_response_is_answered_502(reply: bytes) -> None:
    async def invalid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(reply)
        await writer.drain()

    async with backend(handle=invalid) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        response = await site.get()

        assert status(response) == 502 and b"x-b" not in response, response


async def test_early_hints_are_skipped() -> None:
    reply = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK
    async with backend(reply) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        assert (await site.get()).endswith(b"ok")


async def test_a_response_that_ends_early_is_cut_off_for_the_client_too() -> None:
    for reply in (HEAD + b"content-length: 10\r\n\r\nabc", HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"):

        async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: bytes = reply) -> None:
            await read_request(reader)
            writer.write(reply)
            await writer.drain()

        async with backend(handle=short) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
            response = await site.get()
            assert not response.endswith(b"0\r\n\r\n") and b"abcabc" not in response


async def test_what_follows_a_response_is_nobodys() -> None:
    async with backend(OK + OK) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert status(await reader.readuntil(b"ok")) == 200
        writer.close()
        assert web.connections == 3, "a connection with surplus bytes was used again"


async def test_a_response_until_the_end_of_the_connection_is_whole() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + b"\r\n" + b"x" * 500_000)
        await writer.drain()

    async with backend(handle=plain) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        response = await site.get()
        assert response.count(b"x") >= 500_000 and response.endswith(b"0\r\n\r\n")


async def test_tiny_chunks_do_not_occupy_the_gateway() -> None:
    async def tiny(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 200_000 + b"0\r\n\r\n")
        await writer.drain()

    async with (
        backend(handle=tiny) as web,
        backend() as other,
        gateway(
            listener(rule(), rule("/other", service="other")), services={"web": [web.port], "other": [other.port]}
        ) as site,
    ):
        flood = asyncio.create_task(site.get())
        slowest = 0.0
        while not flood.done():
            began = time.monotonic()
            assert status(await site.raw(b"GET /other HTTP/1.0\r\n\r\n")) == 200
            slowest = max(slowest, time.monotonic() - began)
        assert (await flood).count(b"a") >= 200_000
        assert slowest < 1.0


async def test_tiny_chunks_of_many_responses_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    iterations, parsed = Iterations(), Counter[int]()
    feed = ResponseParser.feed

    def counted(parser: ResponseParser, data: bytes) -> bytes:
        before = parser.buffered
        rest = feed(parser, data)
        parsed[iterations.number] += parser.buffered - before
        return rest

    async def tiny(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 10_000 + b"0\r\n\r\n")
        await writer.drain()

    monkeypatch.setattr(ResponseParser, "feed", counted)
    async with backend(handle=tiny) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        with iterations:
            found = await asyncio.gather(*[site.get() for _ in range(40)])

    assert all(response.count(b"a") >= 10_000 and response.endswith(b"0\r\n\r\n") for response in found)
    assert max(parsed.values()) < 20_000, "chunks parsed in one iteration of the event loop"


async def test_an_endpoint_that_refuses_connections_is_skipped() -> None:
    async with backend() as web, gateway(listener(rule()), services={"web": [reserve()[0], web.port]}) as site:
        for _ in range(6):
            assert status(await site.get()) == 200
        assert len(web.requests) == 6


async def test_no_endpoint_is_503_and_none_that_accepts_502() -> None:
    async with gateway(listener(rule()), services={}) as site:
        assert status(await site.get()) == 503
    async with gateway(listener(rule()), services={"web": reserve()}) as site:
        assert status(await site.get()) == 502


async def test_a_backend_that_does_not_respond_is_504() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with backend(handle=silent) as web:
        services = {"web": [web.port]}
        limits = replace(BACKENDS, response_timeout=0.3)
        async with gateway(listener(rule()), services=services, backends=limits) as site:
            assert status(await site.get()) == 504
        async with gateway(listener(rule(request_seconds=0.3)), services=services) as site:
            assert status(await site.get()) == 504


async def test_a_response_that_stalls_is_cut_off() -> None:
    async def stalling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + b"content-length: 10\r\n\r\nabc")
        await reader.read()

    limits = replace(BACKENDS, silence_timeout=0.3)
    async with (
        backend(handle=stalling) as web,
        gateway(listener(rule()), services={"web": [web.port]}, backends=limits) as site,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(5):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readuntil(b"never")
        writer.close()


async def test_an_early_answer_reaches_a_client_that_is_still_sending() -> None:
    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
        await writer.drain()
        await asyncio.sleep(0.2)

    async with backend(handle=refusing) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        response = await site.raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50_000)
        assert status(response) == 413 and response.endswith(b"big") and b"connection: close" in response


async def test_a_connection_that_the_backend_has_closed_meanwhile_is_replaced() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await writer.drain()
        with pytest.raises(asyncio.IncompleteReadError):  # the next request is not answered
            await reader.readexactly(1)
            raise asyncio.IncompleteReadError(b"", 1)

    async with backend(handle=once) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        for _ in range(3):
            assert status(await site.get()) == 200
        assert web.connections == 3


async def test_one_namespaces_slow_backends_leave_connections_to_others() -> None:
    asked = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await read_request(reader)
        asked += 1
        await reader.read()

    slow, fast = rule("/slow"), rule("/fast", service="fast")
    other = replace(fast, backends=(replace(fast.backends[0], namespace="other"),))
    limits = replace(BACKENDS, each=5, connections=20)
    async with backend(handle=silent) as web, backend() as quick:
        services = {"web": [web.port], "fast": [quick.port]}
        async with gateway(listener(slow, other), services=services, backends=limits) as site:
            waiting = [asyncio.create_task(site.get("/slow")) for _ in range(5)]
            async with asyncio.timeout(5):
                while asked < 5:
                    await asyncio.sleep(0.01)
            assert status(await site.get("/slow")) == 503
            assert status(await site.get("/fast")) == 200
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("framing", [b"Content-Length: 400", b"Transfer-Encoding: chunked"])
async def test_a_connection_whose_request_was_not_sent_completely_is_not_used_again(framing: bytes) -> None:
    """Else the backend takes the next client's request for the rest of the body, and what follows it for a request."""
    lines: list[list[bytes]] = []

    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append([])
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines[-1].append(head.split(b"\r\n")[0])
            writer.write(OK)
            await writer.drain()

    async with backend(handle=hasty) as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"POST /first HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % framing)
        assert await reader.readuntil(b"ok")
        assert (await site.get("/second")).endswith(b"ok")
        writer.close()
    assert lines == [[b"POST /first HTTP/1.1"], [b"GET /second HTTP/1.1"]]
