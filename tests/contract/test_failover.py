"""A client of several API servers: it fails over to another when its own is gone, hangs or is not ready, and comes back.

The servers are small ones of the test's own, so that each can hang and fail at will; the waits are shortened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube import loops
from kube import servers as known
from kube.connections import Connections
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.servers import Servers
from kube.transport import HttpsTransport
from tests.support.clock import FakeClock
from tests.support.ports import reserve


class Server:
    """Answers with its name; `hang` makes it accept everything and answer nothing, as a stopped process does."""

    def __init__(self, name: str) -> None:
        self.name, self.ready = name, True
        self.going = asyncio.Event()
        self.going.set()
        self.calls = self.writes = 0
        self.url = ""
        self._runner: web.AppRunner | None = None
        (self._port,) = reserve()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/watch", self._watch)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _readyz(self, request: web.Request) -> web.Response:
        await self.going.wait()
        return web.Response(status=200 if self.ready else 500)

    async def _answer(self, request: web.Request) -> web.Response:
        await self.going.wait()
        self.calls += 1
        self.writes += request.method == "POST"
        if request.path == "/drop":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(text=self.name)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(f"{self.name}\n".encode())
        await asyncio.Event().wait()
        return answer


@contextlib.asynccontextmanager
async def running(count: int) -> AsyncIterator[list[Server]]:
    made = [Server(f"s{number}") for number in range(count)]
    try:
        for server in made:
            await server.start()
        yield made
    finally:
        for server in made:
            server.going.set()
            await server.stop()


@contextlib.asynccontextmanager
async def transport_to(servers: list[Server], folder: Path, preferred: int = 0) -> AsyncIterator[HttpsTransport]:
    made = Servers(servers[preferred].url, folder / "x.servers")
    made.learn(server.url for server in servers)
    transport = HttpsTransport(Access(servers[preferred].url), servers=made)
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(known, "ANSWER_SECONDS", 10.0)
    monkeypatch.setattr(known, "RETURN_SECONDS", (0.2, 0.4))


async def message(transport: HttpsTransport, path: str = "/x", method: str = "GET") -> str:
    return (await transport.request(method, path)).body.decode()


async def until(look: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not look():
            await asyncio.sleep(0.01)


async def test_a_read_goes_on_at_another_server_when_its_own_is_gone(tmp_path: Path) -> None:
    async with running(3) as servers, transport_to(servers, tmp_path) as transport:
        assert await message(transport) == "s0"
        await servers[0].stop()
        assert await message(transport) in ("s1", "s2")


async def test_a_write_goes_on_at_another_server_when_its_own_is_gone(tmp_path: Path) -> None:
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        await servers[0].stop()
        assert await message(transport, method="POST") == "s1"


async def test_a_write_whose_answer_was_lost_is_not_sent_twice(tmp_path: Path) -> None:
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        with pytest.raises(StatusError) as raised:
            await message(transport, "/drop", "POST")
        assert raised.value.code == 503
        assert [server.writes for server in servers] == [1, 0]
        assert await message(transport) == "s1"


async def test_a_server_that_hangs_is_left_with_all_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "ANSWER_SECONDS", 2.0)
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        assert await message(transport) == "s0"
        async with transport.stream("/watch") as chunks:
            assert await anext(chunks) == b"s0\n"
            servers[0].going.clear()
            # More than the pool has connections, so that some wait for one.
            reads = [asyncio.create_task(message(transport)) for _ in range(40)]
            with pytest.raises(StatusError) as raised:
                await anext(chunks)
            assert raised.value.code == 503
        assert set(await asyncio.gather(*reads)) == {"s1"}


async def test_a_server_that_is_not_ready_is_left(tmp_path: Path) -> None:
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        assert await message(transport) == "s0"
        servers[0].ready = False
        await until(lambda: transport.server == servers[1].url)
        assert await message(transport) == "s1"


async def test_a_slow_server_is_kept_while_no_other_is_ready(tmp_path: Path) -> None:
    async with running(3) as servers, transport_to(servers, tmp_path) as transport:
        assert await message(transport) == "s0"
        for server in servers:
            server.ready = False
        await asyncio.sleep(0.5)
        assert await message(transport) == "s0"
        await servers[0].stop()
        with pytest.raises(StatusError):
            await message(transport)
        servers[2].ready = True
        await until(lambda: transport.server == servers[2].url)


async def test_a_client_comes_back_to_its_preferred_server(tmp_path: Path) -> None:
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        await servers[0].stop()
        assert await message(transport) == "s1"
        async with transport.stream("/watch") as chunks:
            assert await anext(chunks) == b"s1\n"
            await servers[0].start()
            with pytest.raises(StatusError):
                await anext(chunks)
        assert await message(transport) == "s0"


async def test_a_client_that_starts_while_its_server_is_away_finds_those_it_once_learned(tmp_path: Path) -> None:
    async with running(2) as servers:
        async with transport_to(servers, tmp_path) as transport:
            assert await message(transport) == "s0"
        await servers[0].stop()
        transport = HttpsTransport(Access(servers[0].url), servers=Servers(servers[0].url, tmp_path / "x.servers"))
        try:
            assert await message(transport) == "s1"
        finally:
            await transport.close()


async def test_requests_under_way_survive_a_change_of_the_certificate(tmp_path: Path) -> None:
    async with running(1) as servers:
        transport = HttpsTransport(Access(servers[0].url))
        try:
            servers[0].going.clear()
            reads = [asyncio.create_task(message(transport)) for _ in range(40)]
            await asyncio.sleep(0.1)
            await transport.reconnect()
            servers[0].going.set()
            assert set(await asyncio.gather(*reads)) == {"s0"}
        finally:
            await transport.close()


async def test_a_closed_client_sends_no_request_and_leaves_no_connection_open(tmp_path: Path) -> None:
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        assert await message(transport) == "s0"
        async with transport.stream("/watch") as chunks:
            assert await anext(chunks) == b"s0\n"
            await transport.close()
            with pytest.raises(StatusError):
                await anext(chunks)
        with pytest.raises(StatusError, match="the client is closed"):
            await message(transport)
        with pytest.raises(StatusError, match="the client is closed"):
            async with transport.stream("/watch"):
                pass
        assert [server.calls for server in servers] == [2, 0]


async def test_clients_of_a_lost_server_spread_over_the_others(tmp_path: Path) -> None:
    async with running(3) as servers, contextlib.AsyncExitStack() as stack:
        transports = [await stack.enter_async_context(transport_to(servers, tmp_path)) for _ in range(30)]
        await servers[0].stop()
        answers = await asyncio.gather(*(message(transport) for transport in transports))
        assert set(answers) == {"s1", "s2"}


def test_the_servers_file_is_private_and_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "agent.servers"
    Servers("https://10.0.0.1:6443", path).learn(["https://10.0.0.3:6443", "https://10.0.0.2:6443"])
    found = Servers("https://10.0.0.1:6443", path)
    assert found.all == ["https://10.0.0.1:6443", "https://10.0.0.2:6443", "https://10.0.0.3:6443"]
    found.learn([])
    assert len(found.all) == 3
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_certificate_that_cannot_be_read_for_a_moment_does_not_end_the_watch_over_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        assert await message(transport) == "s0"
        broken, made = [True], Connections.__init__

        def init(self: Connections, *arguments: Any) -> None:
            if broken:
                raise OSError("certificate file is being replaced")
            made(self, *arguments)

        monkeypatch.setattr(Connections, "__init__", init)
        await transport.reconnect()
        with pytest.raises(StatusError, match="is being replaced"):
            await message(transport)
        await asyncio.sleep(0.5)  # some turns of the watch
        broken.clear()
        servers[0].ready = False
        await until(lambda: transport.server == servers[1].url)


async def test_an_unforeseen_error_does_not_end_the_watch_over_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "FIRST_RETRY", 0.1)
    async with running(2) as servers, transport_to(servers, tmp_path) as transport:
        assert await message(transport) == "s0"
        failures, ready = [1], Connections.ready

        async def fails_once(self: Connections, seconds: float) -> bool:
            if failures:
                failures.clear()
                raise RuntimeError("a bug")
            return await ready(self, seconds)

        monkeypatch.setattr(Connections, "ready", fails_once)
        await until(lambda: not failures)
        servers[0].ready = False
        await until(lambda: transport.server == servers[1].url)


async def test_a_token_file_that_is_away_for_a_moment_ends_neither_requests_nor_the_use_of_the_server(
    tmp_path: Path,
) -> None:
    token, clock = tmp_path / "token", FakeClock()
    async with running(2) as servers:
        made = Servers(servers[0].url)
        made.learn(server.url for server in servers)
        access = Access(servers[0].url, token_file=str(token))
        transport = HttpsTransport(access, servers=made, clock=clock)
        try:
            with pytest.raises(StatusError, match="token"):
                await message(transport)
            with pytest.raises(StatusError, match="token"):
                async with transport.stream("/watch"):
                    pass
            token.write_text("secret")
            assert await message(transport) == "s0"
            token.unlink()
            await clock.advance(120)
            assert await message(transport) == "s0"
            async with transport.stream("/watch") as chunks:
                assert await anext(chunks) == b"s0\n"
            assert transport.server == servers[0].url
        finally:
            await transport.close()
