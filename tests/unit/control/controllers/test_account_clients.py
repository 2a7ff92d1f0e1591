"""Tokens of controllers' service accounts, as a controller manager of its own process has them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from control.controllers.account_clients import AccountTransport
from kube.client import Client, Response
from kube.clock import format_time
from kube.errors import StatusError, not_found
from tests.support.clock import FakeClock

PODS = "/api/v1/pods"


class Server:
    """Makes accounts and tokens, and takes the newest token alone."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.accounts: set[str] = set()
        self.tokens = 0
        self.received: list[tuple[str, str]] = []
        self.refuses = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
    ) -> Response:
        self.received.append((method, path))
        if path == PODS:
            return Response(401 if self._wrong(headers) else 200, {}, b"{}")
        name = path.split("/serviceaccounts")[1].split("/")[1:]
        if method == "GET" and name[0] not in self.accounts:
            error = not_found("", "serviceaccounts", name[0])
            return Response(404, {}, json.dumps(error.to_status()).encode())
        if path.endswith("/token"):
            self.tokens += 1
            seconds = json.loads(body)["spec"]["expirationSeconds"]
            end = format_time(self.clock.now() + timedelta(seconds=seconds))
            status = {"token": f"t{self.tokens}", "expirationTimestamp": end}
            return Response(201, {}, json.dumps({"status": status}).encode())
        if method == "POST":
            self.accounts.add(json.loads(body)["metadata"]["name"])
        return Response(200, {}, b"{}")

    def _wrong(self, headers: Mapping[str, str] | None) -> bool:
        return self.refuses or (headers or {}).get("Authorization") != f"Bearer t{self.tokens}"

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        if self._wrong(headers):
            raise StatusError(401, "Unauthorized", "Unauthorized")

        async def chunks() -> AsyncIterator[bytes]:
            yield b"{}"

        yield chunks()

    async def close(self) -> None:
        """Nothing is held."""


def made() -> tuple[Server, Any, FakeClock]:
    clock = FakeClock()
    server = Server(clock)
    through: Any = server
    return server, AccountTransport(through, Client(server), "job-controller", "kube-controller-manager", clock), clock


async def test_an_account_that_is_missing_is_made_and_its_token_kept_for_four_fifths_of_its_life() -> None:
    server, transport, clock = made()
    assert (await transport.request("GET", PODS)).status == 200
    root = "/api/v1/namespaces/kube-system/serviceaccounts"
    assert server.received == [
        ("GET", f"{root}/job-controller"),
        ("POST", root),
        ("POST", f"{root}/job-controller/token"),
        ("GET", PODS),
    ]
    await clock.advance(2879)
    await transport.request("GET", PODS)
    assert server.tokens == 1
    await clock.advance(2)
    await transport.request("GET", PODS)
    assert server.tokens == 2


async def test_a_rejected_token_is_requested_again_once() -> None:
    server, transport, _ = made()
    await transport.request("GET", PODS)
    server.tokens += 1  # the one before is revoked
    assert (await transport.request("GET", PODS)).status == 200
    assert server.tokens == 3
    server.refuses = True
    assert (await transport.request("GET", PODS)).status == 401
    assert server.tokens == 4


async def test_a_watch_that_is_refused_has_a_new_token_the_next_time() -> None:
    server, transport, _ = made()
    await transport.request("GET", PODS)
    server.tokens += 1
    with pytest.raises(StatusError, match="Unauthorized"):
        async with transport.stream(PODS):
            pass
    async with transport.stream(PODS) as chunks:
        assert [chunk async for chunk in chunks] == [b"{}"]
