"""The process of a gateway: started when there is one, restarted when it fails or hangs, ended with the last one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kube.api import discovery_v1, meta_v1
from kube.clock import SYSTEM
from kube.gateway import names
from kube.informer import Change
from netproxy import gateway_process
from netproxy.gateway_process import GatewayProcess
from netproxy.gateway_sockets import GatewaySockets

LIVE = "import sys, time\nwhile True:\n    print('.', end='', flush=True)\n    time.sleep(0.05)\n"
"""Sends heartbeats."""
HUNG = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('.', flush=True)\ntime.sleep(1000)\n"
"""Sends one heartbeat, and ignores what is to end it."""


class Slices:
    """Stands for the informer of slices."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[Change[Any]], None]] = []

    def subscribe(self, handler: Callable[[Change[Any]], None]) -> None:
        self._handlers.append(handler)

    def emit(self, kind: str, namespace: str = names.NAMESPACE) -> None:
        metadata = meta_v1.ObjectMeta(name="gateway-1-ipv4", namespace=namespace, labels={names.UID: "1"})
        for handler in self._handlers:
            handler(Change(kind, None, discovery_v1.EndpointSlice(metadata=metadata)))


class Site:
    """A process under test, and the pids that it has had."""

    def __init__(self, script: str) -> None:
        self.slices = Slices()
        self.sockets = GatewaySockets(*[lambda addresses: None] * 2)
        argv = [sys.executable, "-I", "-c", script]
        self.gateway = GatewayProcess(self.slices, argv, self.sockets, SYSTEM)  # type: ignore[arg-type]
        self.task = asyncio.create_task(self.gateway.run())

    async def pid(self, other_than: int = 0) -> int:
        """Wait for a process, and return its number."""
        async with asyncio.timeout(20):
            while True:
                process = self.gateway.process
                if process is not None and process.pid != other_than:
                    return process.pid
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.sockets.close()


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def ended(pid: int) -> None:
    """Wait until a process is no more."""
    async with asyncio.timeout(20):
        while _exists(pid):
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FIRST_RETRY", 0.05), ("LINGER_SECONDS", 0.1), ("END_SECONDS", 1.0)):
        monkeypatch.setattr(gateway_process, name, value)


@pytest.fixture
async def live() -> AsyncIterator[Site]:
    site = Site(LIVE)
    yield site
    await site.stop()


async def test_it_runs_while_there_is_a_gateway(live: Site) -> None:
    live.slices.emit("ADDED", "default")
    await asyncio.sleep(0.1)
    assert live.gateway.process is None, "a slice of another namespace is no gateway"
    live.slices.emit("ADDED")
    pid = await live.pid()
    live.slices.emit("DELETED")
    live.slices.emit("ADDED")
    await asyncio.sleep(0.3)
    assert await live.pid() == pid, "it survives a gateway that is replaced"
    live.slices.emit("DELETED")
    await ended(pid)
    async with asyncio.timeout(20):
        while live.gateway.process is not None:  # its end is noticed a moment later
            await asyncio.sleep(0.01)


async def test_it_is_started_again_when_it_ends(live: Site) -> None:
    live.slices.emit("ADDED")
    first = await live.pid()
    os.kill(first, 9)
    second = await live.pid(first)
    await live.stop()
    await ended(second)


async def test_a_process_that_hangs_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_process, "SILENCE_SECONDS", 0.5)
    site = Site(HUNG)
    try:
        site.slices.emit("ADDED")
        first = await site.pid()
        second = await site.pid(first)
        await ended(first)
    finally:
        await site.stop()
    await ended(second)


async def test_a_program_that_cannot_be_started_is_retried() -> None:
    site = Site("")
    site.gateway._argv = ["/does/not/exist"]
    try:
        site.slices.emit("ADDED")
        await asyncio.sleep(0.2)
        assert not site.task.done()
        site.gateway._argv = [sys.executable, "-I", "-c", LIVE]
        pid = await site.pid()
    finally:
        await site.stop()
    await ended(pid)
