"""Requests that hold the event loop: stopped with 504, and their user's next ones refused for a while; others are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.auth.authenticators import AnonymousPolicy
from control.auth.user import Credentials, Decision, UserInfo
from control.config import ControlConfig
from control.fairness.fairness import Fairness
from control.http.chunks import Chunks
from control.http.exchange import Answer, Request, Response, Stream
from control.server import pipeline as pipelines
from control.server.edge import Edge
from control.server.metrics import RequestMetrics
from control.server.pipeline import Pipeline
from kube.step_limit import StepTooLong, sampling
from kube.step_shares import Shares


class Auth:
    """Takes a token for the user's name, with the group that follows a slash; allows everything."""

    def __init__(self) -> None:
        self.anonymous, self.authenticator, self.authorizer = AnonymousPolicy(), self, self

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        name, _, group = (credentials.token or "").partition("/")
        return UserInfo(name, groups=(group,)) if name else None

    def authorize(self, attributes: Any) -> tuple[Decision, str]:
        return Decision.ALLOW, ""


async def nothing(limit: int) -> bytes:
    return b""


class Server:
    """A pipeline whose handler never ends for objects called "endless"."""

    def __init__(self) -> None:
        auth: Any = Auth()
        config = ControlConfig(*[Path("unused")] * 5)
        self._pipeline = Pipeline(
            config, auth, self._handle, self._handle, Fairness(600, 15), RequestMetrics(), lambda info: 1
        )

    async def _handle(self, request: Request) -> Answer:
        if request.info.verb == "watch":
            return Stream(self._events())
        while request.info.name == "endless":
            pass
        return Response(200)

    async def _events(self) -> AsyncIterator[bytes]:
        yield b"first"
        while True:
            pass

    async def watch(self, token: str) -> list[bytes]:
        """Return what the edge sends of a stream, of which the second chunk never comes."""
        sent: list[bytes] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("body", b""))

        received = iter([{"type": "http.request", "body": b""}])

        async def receive() -> dict[str, Any]:
            return next(received, None) or await asyncio.get_running_loop().create_future()

        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/api/v1/watch/pods", "query_string": b"", "headers": headers}
        with pytest.raises(StepTooLong):
            await Edge(self._pipeline)({**scope, "http_version": "1.1"}, receive, send)
        return sent

    async def get(self, path: str, token: str | None, user: UserInfo | None = None) -> Response:
        request = Request("GET", path, b"", {}, nothing)
        answer = await self._pipeline.answer(request, Credentials(None, token), user)
        assert isinstance(answer, Response)
        return answer

    async def get_pod(self, name: str, token: str) -> int:
        return (await self.get(f"/api/v1/namespaces/n/pods/{name}", token)).status


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    def quick(work: str, seconds: float, share: float, pause: float) -> Shares:
        return Shares(work, 0.1, share, pause)

    monkeypatch.setattr(pipelines, "Shares", quick)
    return Server()


async def test_a_request_that_holds_the_loop_is_stopped_and_its_user_is_refused_for_a_while(server: Server) -> None:
    with sampling():
        assert await server.get_pod("endless", "jane") == 504
        refused = await server.get("/api/v1/namespaces/n/pods/p", "jane")
        assert refused.status == 429
        assert 5 < int(dict(refused.headers)[b"retry-after"]) <= 10
        assert await server.get_pod("p", "ann") == 200


async def test_service_accounts_of_a_namespace_are_refused_together_but_for_those_of_the_system(server: Server) -> None:
    account = "system:serviceaccount:{}:{}"
    with sampling():
        assert await server.get_pod("endless", account.format("n", "one")) == 504
        assert await server.get_pod("p", account.format("n", "two")) == 429
        assert await server.get_pod("p", account.format("m", "one")) == 200
        assert await server.get_pod("endless", account.format("kube-system", "one")) == 504
        assert await server.get_pod("p", account.format("kube-system", "two")) == 200


async def test_administrators_health_checks_and_the_server_itself_are_never_refused(server: Server) -> None:
    with sampling():
        assert await server.get_pod("endless", "root/system:masters") == 504
        assert await server.get_pod("p", "root/system:masters") == 200
        assert await server.get_pod("endless", "jane") == 504
        assert (await server.get("/livez", "jane")).status == 200
        assert (await server.get("/api/v1/namespaces/n/pods/p", None, UserInfo("jane"))).status == 200


async def test_a_stream_that_holds_the_loop_is_stopped_and_its_user_is_refused_for_a_while(server: Server) -> None:
    with sampling():
        assert b"first" in await server.watch("jane")
        assert await server.get_pod("p", "jane") == 429
        assert await server.get_pod("p", "ann") == 200


async def test_nothing_is_refused_where_no_step_was_long(server: Server) -> None:
    with sampling():
        assert {await server.get_pod("p", "jane") for _ in range(500)} == {200}


async def test_a_stream_that_nobody_gets_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    async def handle(request: Request) -> Answer:
        return Stream(Chunks(lambda _: server._events(), close))

    server._pipeline.add_middleware(lambda handler: handle)
    monkeypatch.setattr(server._pipeline.metrics, "observe", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await server.get("/api/v1/watch/pods", "jane")
    assert closed == [True]
