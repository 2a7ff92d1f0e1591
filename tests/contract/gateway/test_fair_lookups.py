"""Requests whose rules are expensive to find wait, round robin over namespaces, before their rules are looked up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kube.gateway.model import Backend, Route, Rule
from kube.serving.fair_queue import FairQueue
from netproxy.gateway.application import BYTES_PER_TURN, REQUESTS, STEPS_PER_TURN
from netproxy.gateway.listening import Place, Served
from netproxy.gateway.path_table import Found
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_target import RequestTarget, WrittenTarget
from netproxy.gateway.routing import PortTable
from netproxy.gateway.rule import CompiledRule
from tests.support.gateway_site import backend, gateway, listener, rule, status
from tests.support.ports import reserve

CLIENTS = 64


class _Recorder(PortTable):
    """A table in which each lookup takes 500 steps; records the iterations of the event loop that they are in."""

    def __init__(self) -> None:
        super().__init__(80)
        self.iteration = 0
        self.found: list[int] = []

    def find(self, request: RoutedRequest, server_name: str | None) -> Found:
        self.found.append(self.iteration)
        request.count_steps(500)
        made = Rule(backends=(Backend(1, "evil", "web", 80),))
        return Found(CompiledRule(Route("HTTPRoute", "evil", "r", "2026", (), (made,)), made), "")

    async def count(self) -> None:
        while True:
            self.iteration += 1
            await asyncio.sleep(0)


async def test_few_rules_are_looked_up_in_an_iteration_and_take_turns_for_what_they_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: Counter[str] = Counter()
    wait = FairQueue.wait

    async def counted(queue: FairQueue, owner: str) -> None:
        turns[owner] += 1
        await wait(queue, owner)

    monkeypatch.setattr(FairQueue, "wait", counted)
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        evil, table = Place("127.0.0.1", reserve()[0], False, "evil"), _Recorder()
        served = site.listening._listeners[site.place]._served
        site.listening.set({site.place: served, evil: Served(table, {})})
        opened = [await asyncio.open_connection("127.0.0.1", evil.port) for _ in range(CLIENTS)]
        counting = asyncio.create_task(table.count())
        for _, writer in opened:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert status(await site.get()) == 200
        async with asyncio.timeout(10):
            for reader, _ in opened:
                assert status(await reader.readuntil(b"ok")) == 200
        counting.cancel()
        for _, writer in opened:
            writer.close()

    most = max(map(table.found.count, table.found))
    assert len(table.found) == CLIENTS and most <= REQUESTS
    assert turns["evil"] == CLIENTS * (1 + 500 // STEPS_PER_TURN) and turns["apps"] == 1


async def test_few_targets_are_normalized_in_an_iteration_and_take_turns_for_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: Counter[str] = Counter()
    wait, normal = FairQueue.wait, WrittenTarget.normal
    evil, table = Place("127.0.0.1", reserve()[0], False, "evil"), _Recorder()
    normalized: list[int] = []

    async def counted(queue: FairQueue, owner: str) -> None:
        turns[owner] += 1
        await wait(queue, owner)

    def recorded(written: WrittenTarget) -> RequestTarget:
        normalized.append(table.iteration)
        return normal(written)

    monkeypatch.setattr(FairQueue, "wait", counted)
    monkeypatch.setattr(WrittenTarget, "normal", recorded)
    target = b"/%2F" * 3900
    async with backend() as web, gateway(listener(rule()), services={"web": [web.port]}) as site:
        served = site.listening._listeners[site.place]._served
        site.listening.set({site.place: served, evil: Served(PortTable(80), {})})
        opened = [await asyncio.open_connection("127.0.0.1", evil.port) for _ in range(CLIENTS)]
        counting = asyncio.create_task(table.count())
        for number, (_, writer) in enumerate(opened):
            # every second one is refused, which is not cheaper
            writer.write(b"GET %s%s HTTP/1.1\r\nHost: a\r\n\r\n" % (target, b"/%5C.." if number % 2 else b""))
        async with asyncio.timeout(10):
            answers = [status(await reader.readuntil(b"\r\n\r\n")) for reader, _ in opened]
        counting.cancel()
        for _, writer in opened:
            writer.close()

    assert answers == [404, 400] * (CLIENTS // 2)
    assert len(normalized) == CLIENTS and max(Counter(normalized).values()) <= REQUESTS
    assert turns == {"evil": CLIENTS * (1 + len(target) // BYTES_PER_TURN)}
