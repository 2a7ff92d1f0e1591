"""Host names in probes and hooks whose name server never answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web

from agent import host_lookups
from agent.interfaces import HookError
from agent.pods import hooks
from agent.pods.hooks import Hooks
from agent.probes.handlers import Handlers
from agent.probes.result import Target, Verdict
from agent.threads import FILES, Owner, Threads
from kube.api import core_v1, meta_v1

SLOW = ".slow.example"
MAIN = core_v1.Container(name="main")


class Resolver:
    """The machine's resolver, but for names that wait until they are answered."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.received: list[str] = []
        self._real = socket.getaddrinfo

    def __call__(self, host: str, *args: Any, **named: Any) -> Any:
        if not str(host).endswith(SLOW):
            return self._real(host, *args, **named)
        self.received.append(host)
        self.answer.wait()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    yield resolver
    resolver.answer.set()


@pytest.fixture
async def web_port() -> AsyncIterator[int]:
    async def reply(request: web.BaseRequest) -> web.Response:
        return web.Response(text="body")

    runner = web.ServerRunner(web.Server(reply), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


def _probe(number: int, host: str, port: int = 80) -> core_v1.Probe:
    if number % 2:
        action = core_v1.HTTPGetAction(host=host, port=port)
        return core_v1.Probe(http_get=action, timeout_seconds=60)
    return core_v1.Probe(tcp_socket=core_v1.TCPSocketAction(host=host, port=port), timeout_seconds=60)


async def _hook(pod: core_v1.Pod, host: str, port: int) -> None:
    action = core_v1.HTTPGetAction(host=host, port=port)
    handler = core_v1.LifecycleHandler(http_get=action)
    await Hooks(None).run(pod, "127.0.0.1", MAIN, "id", handler)  # type: ignore[arg-type]


async def test_names_that_nobody_answers_hold_up_neither_files_nor_other_pods(
    resolver: Resolver, web_port: int
) -> None:
    Threads().install()
    handlers = Handlers(None)  # type: ignore[arg-type]
    bad, good = Owner("bad", "one"), Owner("good", "one")
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="bad", namespace="one", uid="bad"))
    tasks = [
        asyncio.create_task(handlers.run(_probe(number, f"n{number}{SLOW}"), Target(MAIN, "id", "", bad)))
        for number in range(2 * FILES)
    ]
    hook = asyncio.create_task(_hook(pod, f"hook{SLOW}", 80))
    async with asyncio.timeout(20):
        while len(resolver.received) < host_lookups.POD:
            await asyncio.sleep(0)
        assert await asyncio.to_thread(os.getpid) == os.getpid()
        for number in range(2):
            probe = _probe(number, "localhost", web_port)
            assert (await handlers.run(probe, Target(MAIN, "id", "", good))).verdict is Verdict.SUCCESS
        await _hook(core_v1.Pod(metadata=meta_v1.ObjectMeta(name="g", uid="good")), "localhost", web_port)
    assert len(resolver.received) == host_lookups.under_way(bad) == host_lookups.POD
    resolver.answer.set()
    results = await asyncio.gather(*tasks)
    assert {result.verdict for result in results} == {Verdict.FAILURE}
    assert all("no such host" in result.message for result in results)
    with pytest.raises(HookError, match="not known"):
        await hook


async def test_a_name_is_looked_up_once_at_a_time_however_often_its_probe_gives_up(resolver: Resolver) -> None:
    owner = Owner("bad", "one")
    for _ in range(3 * host_lookups.POD):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await host_lookups.addresses(f"one{SLOW}", owner)
    assert len(resolver.received) == host_lookups.under_way(owner) == 1


async def test_the_look_ups_of_a_namespace_leave_places_to_others(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_lookups, "NAMESPACE", 8)
    monkeypatch.setattr(host_lookups, "LIMIT", 10)
    owners = [Owner(f"pod-{number}", "crowd") for number in range(20)]
    tasks = [asyncio.create_task(host_lookups.addresses(f"n{SLOW}", owner)) for owner in owners]
    async with asyncio.timeout(20):
        assert await host_lookups.addresses("localhost", Owner("other", "quiet"))
    assert sum(host_lookups.under_way(owner) for owner in owners) == 8
    resolver.answer.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, socket.gaierror) for answer in answers)


async def test_a_hook_to_a_name_without_an_answer_ends(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "HTTP_SECONDS", 0.05)
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="bad", uid="bad"))
    async with asyncio.timeout(20):
        with pytest.raises(HookError):
            await _hook(pod, f"hook{SLOW}", 80)


@pytest.mark.parametrize("silent", [False, True])
async def test_a_host_is_reached_by_the_address_that_answers(
    web_port: int, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def addresses(host: str, owner: Owner) -> list[host_lookups.Address]:
        return [host_lookups.Address(socket.AF_INET, address) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(host_lookups, "addresses", addresses)
    with contextlib.ExitStack() as stack:
        if silent:  # a queue of connections that is full: further ones get no answer
            full = stack.enter_context(socket.create_server(("127.0.0.2", web_port), backlog=0))
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
        async with asyncio.timeout(20):
            result = await Handlers(None).run(  # type: ignore[arg-type]
                _probe(1, "two.example", web_port), Target(MAIN, "id", "", Owner("uid"))
            )
    assert (result.verdict, result.message) == (Verdict.SUCCESS, "body")
