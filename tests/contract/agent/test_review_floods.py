"""Clients of the kubelet port that have many tokens reviewed delay nobody else's reviews."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import uvicorn

from agent.server import listeners
from agent.server.auth_filter import AuthFilter
from agent.server.authorization import Authorizer
from agent.server.protocol import AgentProtocol
from agent.server.sessions import answer
from kube import delegated_reviews as reviews
from kube.api import authentication_v1, authorization_v1
from kube.bearer_tokens import LONGEST
from kube.client import Client
from kube.delegated_authentication import Authenticator
from tests.support.clock import FakeClock

FLOOD, OTHER = "127.0.0.2", "127.0.0.3"


class API:
    """An API server that knows one token, and answers reviews once it is `open`."""

    def __init__(self) -> None:
        self.open, self.tokens, self.questions = asyncio.Event(), list[str](), list[str]()

    async def create(self, review: Any) -> Any:
        if isinstance(review, authentication_v1.TokenReview):
            self.tokens.append(review.spec.token or "")
            await self.open.wait()
            user = authentication_v1.UserInfo(username="scraper")
            good = review.spec.token == "good"
            review.status = authentication_v1.TokenReviewStatus(authenticated=good, user=user if good else None)
        else:
            self.questions.append(review.spec.user or "")
            await self.open.wait()
            review.status = authorization_v1.SubjectAccessReviewStatus(allowed=True)
        return review


class Port:
    """A kubelet port without TLS, and the line of its reviews."""

    def __init__(self) -> None:
        self.api, self.line, clock = API(), reviews.places(), FakeClock()
        client = cast(Client, self.api)
        self.authenticator = Authenticator(client, clock, cache_seconds=120, anonymous=True, line=self.line)
        authorizer = Authorizer(client, "n", clock, allowed_seconds=300, denied_seconds=30, line=self.line)
        self.app = AuthFilter(self._served, self.authenticator, authorizer)
        self.port = 0

    async def _served(self, scope: Any, receive: Any, send: Any) -> None:
        await answer(send, 200, "fine")

    async def send(self, address: str, token: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        header = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(f"GET /pods HTTP/1.1\r\nHost: n\r\n{header}\r\n".encode())
        return reader, writer


async def status(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> int:
    async with asyncio.timeout(60):
        head = await connection[0].readuntil(b"\r\n\r\n")
    connection[1].close()
    return int(head.split()[1])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Port]:
    for name, value in {"PLACES": 4, "PLACES_OF_ONE": 2, "MOST_WAITING": 3}.items():
        monkeypatch.setattr(reviews, name, value)
    made = Port()
    config = uvicorn.Config(made.app, http=AgentProtocol, ws="none", lifespan="off", log_config=None)
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(listeners._run(config, "127.0.0.1", 0, started.set_result))
    try:
        made.port = await started
        yield made
    finally:
        made.api.open.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_token_is_reviewed_while_those_of_another_address_wait(port: Port) -> None:
    flood = [await port.send(FLOOD, f"bad-{number}") for number in range(5)]
    await until(lambda: len(port.api.tokens) == 2 and port.line.waiting(FLOOD) == 3)
    refused = await port.send(FLOOD, "good")
    assert await status(refused) == 429, "it was not reviewed, and may be good"
    good = await port.send(OTHER, "good")
    await until(lambda: "good" in port.api.tokens)
    assert len(port.api.tokens) == 3
    port.api.open.set()
    assert await status(good) == 200
    assert [await status(each) for each in flood] == [401] * 5


async def test_tokens_of_clients_that_have_gone_are_not_reviewed(port: Port) -> None:
    flood = [await port.send(FLOOD, f"bad-{number}") for number in range(5)]
    await until(lambda: len(port.api.tokens) == 2 and port.line.waiting(FLOOD) == 3)
    for _, writer in flood:
        writer.transport.abort()
    await until(lambda: port.line.waiting(FLOOD) == 0)
    port.api.open.set()
    assert await status(await port.send(FLOOD, "good")) == 200
    assert len(port.api.tokens) == 3


async def test_equal_tokens_and_questions_are_reviewed_once(port: Port) -> None:
    connections = [await port.send(address, "good") for address in (FLOOD, OTHER) for _ in range(3)]
    await until(lambda: len(port.api.tokens) == 1)
    port.api.open.set()
    assert [await status(each) for each in connections] == [200] * 6
    assert (port.api.tokens, port.api.questions) == (["good"], ["scraper"])


async def test_anonymous_clients_share_the_line_by_their_addresses(port: Port) -> None:
    anonymous = await port.send(FLOOD)
    await until(lambda: port.api.questions == ["system:anonymous"])
    assert list(port.line._owners) == [FLOOD]
    port.api.open.set()
    assert await status(anonymous) == 200


async def test_a_token_that_is_too_long_is_not_reviewed(port: Port) -> None:
    assert await status(await port.send(FLOOD, "x" * (LONGEST + 1))) == 401
    assert port.api.tokens == []


async def test_invented_tokens_evict_no_known_one_from_the_cache(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port.authenticator._unknown_tokens, "_limit", 2)
    port.api.open.set()
    for token in ("good", *(f"bad-{number}" for number in range(5)), "good"):
        await status(await port.send(FLOOD, token))
    assert port.api.tokens.count("good") == 1
    assert len(port.authenticator._unknown_tokens._entries) == 2
