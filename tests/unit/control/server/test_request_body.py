"""A request's body: received before the request has a seat, up to a limit, and charged to its connection meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from control.server import body_charge
from control.server.request_body import RequestBody
from kube.errors import StatusError
from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable
from tests.support.hollow import eventually

LENGTH, CHUNKED = b"content-length", b"transfer-encoding"


class Sender:
    """A client that sends parts of a body, of which the last may be missing."""

    def __init__(self, *parts: bytes, complete: bool = True) -> None:
        self.parts, self.complete = list(parts), complete
        self.table = ConnectionTable(ServingLimits(unread_bytes=80_000))
        connection = self.table.add("192.0.2.1", lambda: None)
        assert connection is not None
        self.connection: Connection = connection

    async def receive(self) -> dict[str, Any]:
        if not self.parts:
            await asyncio.Event().wait()
        part = self.parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts) or not self.complete}

    def body(self, length: int | None, seconds: float = 30) -> RequestBody:
        headers = {LENGTH: str(length).encode()} if length is not None else {CHUNKED: b"chunked"}
        cycle: Any = SimpleNamespace(more_body=len(self.parts) > 1 or not self.complete, disconnected=False)
        protocol: Any = self
        return RequestBody(headers, self.receive, cycle, seconds, protocol)

    @property
    def held(self) -> int:
        return self.table.buffered_bytes


async def test_a_body_that_was_collected_is_charged_until_it_is_read() -> None:
    sender = Sender(b"a" * 10, b"b" * 10, b"c")
    body = sender.body(21)
    await body.collect(100)
    assert (body.done, sender.held) == (True, 20)
    assert await body.read(100) == b"a" * 10 + b"b" * 10 + b"c"
    assert (sender.held, await body.read(100)) == (0, b"")


async def test_a_body_that_comes_at_once_is_not_charged() -> None:
    body = Sender(b"{}").body(2)
    assert await body.read(100) == b"{}"
    assert body.charge is None


async def test_of_a_body_of_unknown_length_no_more_than_the_limit_is_collected() -> None:
    sender = Sender(*[b"x" * 10] * 30)
    body = sender.body(None)
    await body.collect(100)
    assert (body.done, sender.held, len(sender.parts)) == (False, 110, 19)
    with pytest.raises(StatusError) as refused:
        await body.read(100)
    assert refused.value.code == 413
    body.release()
    assert sender.held == 0


async def test_a_body_that_is_too_large_is_not_collected_and_can_be_passed_on() -> None:
    for length, collected in ((300, 0), (None, 110)):
        sender = Sender(*[b"x" * 10] * 30)
        body = sender.body(length)
        await body.collect(100)
        assert sender.held == collected
        assert b"".join([part async for part in body.parts()]) == b"x" * 300
        assert sender.held == 0


async def test_a_client_that_leaves_or_is_too_slow_ends_collecting() -> None:
    sender = Sender(b"{", complete=False)
    body = sender.body(10, 0.05)
    with pytest.raises(TimeoutError):
        await body.collect(100)
    assert sender.held == 1
    body.release()
    assert sender.held == 0


async def test_slow_bodies_of_one_user_are_limited_to_an_eighth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_charge, "SLOW_SECONDS", 0.02)
    table = ConnectionTable(ServingLimits(unread_bytes=80_000))
    closed: list[str] = []
    tasks = []
    for name, user, size in (("a", "eve", 6000), ("b", "eve", 7000), ("c", "bob", 6000)):
        sender = Sender(b"x" * size, complete=False)
        connection = table.add("192.0.2.1", lambda name=name: closed.append(name))  # type: ignore[misc]
        assert connection is not None
        table.identify(connection, user)
        sender.table, sender.connection = table, connection
        tasks.append(asyncio.create_task(sender.body(10_000).collect(10_000)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (table.buffered_bytes, closed) == (19_000, [])
    await eventually(lambda: (table.buffered_bytes, closed) == (12_000, ["b"]))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_complete_body_that_waits_counts_as_no_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_charge, "SLOW_SECONDS", 0.02)
    for slow in (False, True):
        sender, go = Sender(b"x" * 6000, b"x" * 6000), asyncio.Event()
        receive = sender.receive

        async def later(go: asyncio.Event = go, sender: Sender = sender, receive: Any = receive) -> dict[str, Any]:
            if len(sender.parts) == 1:
                await go.wait()
            return await receive()

        sender.receive = later  # type: ignore[method-assign]
        collecting = asyncio.create_task(sender.body(12_000).collect(20_000))
        await asyncio.sleep(0)
        assert sender.table._slow_bodies.total == 0
        if slow:
            await eventually(lambda sender=sender: sender.table._slow_bodies.total == 6000)  # type: ignore[misc]
        go.set()
        await collecting
        await asyncio.sleep(0.05)  # longer than after which a body is slow
        assert (sender.table._slow_bodies.total, sender.held) == (0, 6000)
