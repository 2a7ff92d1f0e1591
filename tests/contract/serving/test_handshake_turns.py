"""Handshakes of several tables of connections in one process: those of a gateway's namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from kube.serving import handshakes
from tests.contract.serving.sites import mutual_tls
from tests.contract.serving.test_handshakes import HalfDone, serving
from tests.support.slow_clients import client_hello


class Steps:
    """The steps of servers' handshakes by their settings, each of which waits until it is allowed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = threading.Semaphore(0)
        self.begun = list[ssl.SSLContext]()
        self.submitted = 0
        real, submit = handshakes._Handshake.step, handshakes._threads.submit

        def step(tls: handshakes._Handshake) -> None:
            if tls.server_side:
                self.begun.append(tls.context)
                self.allowed.acquire(timeout=60)
            real(tls)

        def counted(*arguments: object) -> object:
            self.submitted += 1
            return submit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(handshakes._Handshake, "step", step)
        monkeypatch.setattr(handshakes._threads, "submit", counted)


async def test_slow_handshakes_at_one_table_delay_those_at_another_by_one_for_each_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway's namespaces have tables, and keys, of their own."""
    (server, client), (slow, _) = mutual_tls(tmp_path), mutual_tls(tmp_path)
    steps = Steps(monkeypatch)
    ours, others = (socket.create_server(("127.0.0.1", 0), backlog=100) for _ in range(2))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        stack.callback(steps.allowed.release, 1000)
        await stack.enter_async_context(serving(server, ours))
        await stack.enter_async_context(serving(slow, others))
        for _ in range(handshakes.QUEUED + 10):
            flood = socket.create_connection(others.getsockname())
            stack.callback(flood.close)
            flood.sendall(client_hello())
        while steps.submitted < handshakes.QUEUED or len(steps.begun) < handshakes.THREADS:
            await asyncio.sleep(0)
        half = HalfDone(client, ours.getsockname())
        stack.callback(half.socket.close)
        while steps.submitted <= handshakes.QUEUED:
            await asyncio.sleep(0)
        before = len(steps.begun)
        steps.allowed.release(1000)
        await half.answered()
        assert steps.begun.index(server) - before <= handshakes.THREADS, "others' steps that came first"
