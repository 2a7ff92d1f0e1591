"""Requests of one client to one server share its connections fairly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from kube.api import authentication_v1
from kube.client import Client
from kube.connections import REQUESTS
from kube.delegated_reviews import PLACES, client_for_reviews
from kube.errors import StatusError
from kube.heartbeats import Heartbeats
from kube.kubeconfig import Access
from kube.transport import HttpsTransport
from tests.support.control import api_server


@contextlib.asynccontextmanager
async def answered_by(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[HttpsTransport]:
    """Lend a transport to a server that answers each GET so."""
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = HttpsTransport(Access(server=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        yield made
    finally:
        await made.close()
        await runner.cleanup()


@pytest.fixture
async def transport() -> AsyncIterator[HttpsTransport]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="{}")

    async with answered_by(answer) as made:
        yield made


async def test_callers_that_repeat_requests_do_not_starve_waiting_ones_of_connections(
    transport: HttpsTransport,
) -> None:
    answered = [0] * (2 * REQUESTS)

    async def ask(number: int) -> None:
        while min(answered) < 10:
            await transport.request("GET", f"/{number}")
            answered[number] += 1

    await asyncio.gather(*(ask(number) for number in range(len(answered))))
    # Those who waited have had as many turns as those who did not, give or take one of each who is before them.
    assert max(answered) <= 2 * min(answered)


async def test_a_request_that_gave_up_while_it_waited_leaves_its_turn_to_others(transport: HttpsTransport) -> None:
    busy = [asyncio.create_task(transport.request("GET", "/")) for _ in range(3 * REQUESTS)]
    await asyncio.sleep(0)
    for task in busy[REQUESTS : 2 * REQUESTS]:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    answers = await asyncio.gather(*(transport.request("GET", "/") for _ in range(2 * REQUESTS)))
    assert {answer.status for answer in answers} == {200}


async def test_a_watch_over_tls_holds_a_small_buffer_at_either_end(tmp_path: Path) -> None:
    watches = 20
    async with api_server(tmp_path) as server, contextlib.AsyncExitStack() as stack:
        transport = server.client().transport
        for _ in range(watches):
            query = {"watch": "true", "resourceVersion": "0"}
            await stack.enter_async_context(transport.stream("/api/v1/configmaps", query=query))
        buffers = [len(one._ssl_buffer) for one in gc.get_objects() if isinstance(one, SSLProtocol)]  # type: ignore[attr-defined]
        assert len(buffers) >= 2 * watches
        assert max(buffers) <= 32 * 1024


@pytest.fixture
async def hanging() -> AsyncIterator[tuple[HttpsTransport, list[str]]]:
    """A transport to a server that answers nothing but leases, and the paths that were asked for."""
    requested: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requested.append(request.path)
        if request.path != "/lease":
            await asyncio.Event().wait()
        return web.Response(text="{}")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    made = HttpsTransport(Access(server=server))
    yield made, requested
    await made.close()
    await runner.cleanup()


async def test_a_heartbeat_waits_for_no_other_request(hanging: tuple[HttpsTransport, list[str]]) -> None:
    transport, requested = hanging
    busy = [asyncio.create_task(transport.request("PATCH", "/status")) for _ in range(2 * REQUESTS)]
    while len(requested) < REQUESTS:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        assert (await Heartbeats(transport, 10).request("PUT", "/lease")).status == 200
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_a_heartbeat_ends_at_its_limit_and_leaves_the_server_in_use(
    hanging: tuple[HttpsTransport, list[str]],
) -> None:
    transport, requested = hanging
    other = asyncio.create_task(transport.request("PATCH", "/status"))
    with pytest.raises(StatusError, match="cannot reach the API server"):
        await Heartbeats(transport, 0.1).request("PATCH", "/node")
    assert requested.count("/node") == 1
    assert not other.done()
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_reviews_of_the_agent_wait_for_no_other_request_nor_these_for_them(
    hanging: tuple[HttpsTransport, list[str]],
) -> None:
    transport, requested = hanging
    client = Client(transport)
    review = authentication_v1.TokenReview(spec=authentication_v1.TokenReviewSpec(token="x"))
    reviewing = client_for_reviews(client)
    busy = [asyncio.create_task(reviewing.create(review)) for _ in range(2 * REQUESTS)]
    while len(requested) < PLACES:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        assert (await transport.request("GET", "/lease")).status == 200
    assert len(requested) == PLACES + 1
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_an_answer_is_read_to_a_limit(transport: HttpsTransport) -> None:
    assert (await transport.request("GET", "/", most_bytes=2)).body == b"{}"
    with pytest.raises(StatusError, match="the answer to GET / is longer than 1 bytes"):
        await transport.request("GET", "/", most_bytes=1)


async def test_a_websocket_does_not_follow_redirects() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with answered_by(answer) as transport:
        with pytest.raises(StatusError, match="status 307"):
            async with transport.socket("/exec", "v5.channel.k8s.io", most_bytes=1000):
                pass
    assert asked == ["/exec"]
