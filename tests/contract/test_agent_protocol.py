"""The kubelet port's HTTP: upgrades that hand over every byte, answers that are no upgrade, limits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from agent.server import listeners
from agent.server.protocol import AgentProtocol
from agent.streaming.idle import close_when_idle
from agent.streaming.upgrade import UpgradeError, dial, splice
from kube.clock import SYSTEM
from tests.support.clock import FakeClock

App = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def _serving(app: App) -> AsyncIterator[int]:
    config = uvicorn.Config(app, http=AgentProtocol, ws="none", lifespan="off", log_config=None)
    config.load()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(listeners._run(config, "127.0.0.1", 0, port.set_result))
    try:
        yield await port
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def _answering(raw: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A streaming server that reads a request's head and answers with raw bytes; also what it was sent."""
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(raw)
        seen.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/token", seen


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    stream = scope["extensions"]["take_over"]()
    stream.writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    while data := await stream.reader.read(65536):
        stream.writer.write(data)
        await stream.writer.drain()
    await stream.close()


_UPGRADE = b"POST /x HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("apart", [True, False], ids=["after the answer", "in the same segment"])
async def test_bytes_after_an_upgrade_belong_to_the_application(apart: bool) -> None:
    async with _serving(_echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = bytes(range(256)) * 4096
        writer.write(_UPGRADE if apart else _UPGRADE + data)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
        if apart:
            writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()


async def test_the_connection_of_a_client_that_has_left_is_not_taken_over() -> None:
    refused = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        with pytest.raises(ConnectionResetError):  # nothing would tell the session that it has ended
            scope["extensions"]["take_over"]()
        refused.set()

    async with _serving(app) as port, asyncio.timeout(30):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_UPGRADE)
        writer.close()
        await refused.wait()


@pytest.mark.parametrize("option", [b"xupgrade", b"upgrade;q=1", b"keep-alive"])
async def test_only_the_request_that_asks_for_an_upgrade_may_take_over_the_connection(option: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/x":
            await _echo(scope, receive, send)
            return
        may = b"%d" % ("take_over" in scope["extensions"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": may})

    first = b"POST /first HTTP/1.1\r\nHost: n\r\nConnection: %b\r\nUpgrade: SPDY/3.1\r\nContent-Length: 4\r\n\r\nbody"
    async with _serving(app) as port, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first % option + _UPGRADE + b"early")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(1) == b"0"
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(5) == b"early"
        writer.close()


async def test_a_websocket_request_is_an_ordinary_request_until_it_is_taken_over() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async with _serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_UPGRADE.replace(b"POST", b"GET").replace(b"SPDY/3.1", b"websocket"))
        answer = await asyncio.wait_for(reader.read(), 30)  # to the end: nothing may follow on this connection
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert answer.endswith(b"\r\n\r\nno")
        writer.close()


async def test_a_head_without_end_is_cut_off() -> None:
    async with _serving(_echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for _ in range(64):
                writer.write(b"X-Filler: " + b"x" * (64 << 10) + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
            raise ConnectionResetError(await reader.read())
        writer.close()


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad", 400, b"bad"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 302, b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
    ],
)
async def test_only_a_101_opens_the_way_and_redirects_are_not_followed(raw: bytes, status: int, body: bytes) -> None:
    async with _answering(raw) as (url, seen):
        with pytest.raises(UpgradeError) as caught:
            await dial(url, "POST", [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")])
        assert (caught.value.head.status, caught.value.body) == (status, body)
    assert seen[0].startswith(b"POST /exec/token HTTP/1.1\r\nHost: 127.0.0.1:")
    assert seen[1:] in ([], [b""])


async def test_a_server_that_hangs_up_before_answering_is_an_error() -> None:
    async with _answering(b"") as (url, _):
        task = asyncio.create_task(dial(url, "POST", []))
        done, _pending = await asyncio.wait({task}, timeout=0.2)
        assert not done  # it waits for the answer
        task.cancel()
        await asyncio.wait({task})


async def test_splicing_ends_both_sides_when_either_ends() -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\n\r\nhello"
    async with _answering(switched) as (url, seen):

        async def app(scope: Any, receive: Any, send: Any) -> None:
            backend, head = await dial(url, "POST", [])
            client = scope["extensions"]["take_over"]()
            client.writer.write(head.raw)
            await splice(client, backend)

        async with _serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(5) == b"hello"
            writer.write(b"bye")
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
        assert seen[1] == b"bye"


async def test_a_session_that_is_idle_for_long_is_closed_and_a_busy_one_is_not() -> None:
    clock, watches = FakeClock(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        stream = scope["extensions"]["take_over"]()
        watches.append(asyncio.create_task(close_when_idle(stream, 100.0, clock)))
        reader = stream.reader
        stream.writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        while data := await reader.read(65536):
            stream.writer.write(data)
            await stream.writer.drain()
            reader.activity.last += now_and_then.pop(0)
        await stream.close()

    # How far the last use is moved away: a moment ago, then longer ago than allowed.
    now_and_then = [-10.0, -200.0]
    async with _serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"busy")
        assert await reader.readexactly(4) == b"busy"
        await clock.advance(100.0)
        writer.write(b"idle")
        assert await reader.readexactly(4) == b"idle"
        assert not watches[0].done()
        reading = asyncio.create_task(reader.read())
        async with asyncio.timeout(30):
            while not reading.done():
                await clock.advance(100.0)
                await asyncio.sleep(0.01)
        assert await reading == b""
        await asyncio.wait_for(watches[0], 30)
        writer.close()


async def test_nobody_watches_a_session_that_has_ended() -> None:
    watches = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        stream = scope["extensions"]["take_over"]()
        watches.append(asyncio.create_task(close_when_idle(stream, 3600.0, SYSTEM)))
        stream.writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        await stream.close()

    async with _serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_UPGRADE)
        await reader.read()
        await asyncio.wait_for(watches[0], 30)
        writer.close()
