"""Sessions of a namespace and of the node are limited; a further one gets 429."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from agent.server.container_logs import _LogResponse
from agent.server.session_slots import FEW, OF_NAMESPACE, OF_NODE, RESERVE, SessionSlots, TooManySessions
from agent.server.sessions import SessionEndpoint


def test_a_namespace_and_the_node_have_so_many_sessions() -> None:
    slots = SessionSlots(2, 3, 0)
    with ExitStack() as first:
        first.enter_context(slots.slot("a"))
        with ExitStack() as held:
            held.enter_context(slots.slot("a"))
            with pytest.raises(TooManySessions, match="with pods of namespace a on this node: 2 are allowed"):
                held.enter_context(slots.slot("a"))
            held.enter_context(slots.slot("b"))
            with pytest.raises(TooManySessions, match="with pods on this node: 3 are allowed"):
                held.enter_context(slots.slot("c"))
        with slots.slot("a"), slots.slot("c"):
            pass
    assert not slots._open


def test_four_namespaces_leave_sessions_to_others() -> None:
    slots = SessionSlots()
    with ExitStack() as held:
        for number in range(4 * OF_NAMESPACE):
            with suppress(TooManySessions):
                held.enter_context(slots.slot(f"n{number % 4}"))
        assert slots._open.total() == OF_NODE - RESERVE
        with pytest.raises(TooManySessions, match="the last 64 of 512 are for namespaces with fewer than 8"):
            held.enter_context(slots.slot("n0"))
        for _ in range(FEW):
            held.enter_context(slots.slot("kube-system"))
        with pytest.raises(TooManySessions, match="namespaces with fewer than 8"):
            held.enter_context(slots.slot("kube-system"))
        for number in range(RESERVE - FEW):
            held.enter_context(slots.slot(f"other-{number % 8}"))
        with pytest.raises(TooManySessions, match="with pods on this node: 512 are allowed"):
            held.enter_context(slots.slot("one-more"))


async def test_a_log_stream_too_many_gets_429_and_one_that_ended_leaves_its_slot() -> None:
    slots, sent, ended = SessionSlots(1, 2, 0, 0, "log streams of"), list[MutableMapping[str, Any]](), list[str]()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b"a"
            yield b"b"
        finally:
            ended.append("closed")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": await asyncio.Future()}

    scope = {"type": "http", "method": "GET", "asgi": {"spec_version": "2.4"}}
    with slots.slot("n"):
        await _LogResponse(pieces(), slots, "n")(scope, receive, send)
    assert sent[0]["status"] == 429
    assert sent[1]["body"] == b"too many log streams of pods of namespace n on this node: 1 are allowed"
    sent.clear()
    await _LogResponse(pieces(), slots, "n")(scope, receive, send)
    assert b"".join(message.get("body", b"") for message in sent) == b"ab"
    assert ended == ["closed"] and not slots._open


async def test_a_session_too_many_is_refused_before_it_begins() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def session(*arguments: Any) -> None:
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    endpoint = SessionEndpoint(session, SessionSlots(0), with_container=False)
    await endpoint({"path_params": {"namespace": "n", "pod": "p"}}, receive, send)
    assert sent[0]["status"] == 429
    assert b"too many exec, attach and port-forward sessions with pods of namespace n" in sent[1]["body"]
