"""Ends of sessions: a lost connection is no error, and a long step of either direction is stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agent.streaming import channels, port_forward, remote_command, websocket
from agent.streaming.directions import run_until_first_ends
from agent.streaming.upgrade import Stream, splice
from kube.step_limit import Limit, limited, sampling
from kube.step_shares import Shares
from tests.unit.agent.streaming.test_websocket import HANDSHAKE, Writer, _stream


class Lost(Writer):
    """A connection that is lost once it is upgraded."""

    drains = 0

    async def drain(self) -> None:
        self.drains += 1
        if self.drains > 1:
            raise ConnectionResetError("Connection lost")


@pytest.mark.parametrize("kind", ["exec", "forward", "tunnel"])
async def test_a_client_that_aborts_is_an_ordinary_end(kind: str) -> None:
    reader = asyncio.StreamReader()
    socket = await websocket.accept(Stream(reader, cast(Any, Lost())), "/exec", HANDSHAKE, None)
    backend, _ = _stream(b"")
    closed: list[bool] = []
    backend.writer.close = lambda: closed.append(True)  # type: ignore[method-assign]
    reader.feed_data(b"\x82\x82\1\2\3\4\1\2")
    spoken = channels.choose(["v5.channel.k8s.io"])
    assert spoken is not None
    if kind == "exec":
        options = remote_command.StreamOptions(stdin=True)
        await asyncio.wait_for(remote_command.translate(socket, spoken, backend, options), 5)
    elif kind == "tunnel":
        await asyncio.wait_for(port_forward.tunnel(socket, backend), 5)
    else:
        with pytest.raises(ConnectionResetError):  # answered by the endpoint, if the connection is still HTTP's
            await asyncio.wait_for(port_forward.forward(socket, spoken, backend, [80]), 5)
    assert closed


@pytest.mark.parametrize("kind", ["exec", "forward", "tunnel", "splice"])
async def test_the_clients_connection_is_closed_also_if_the_runtimes_cannot_be(kind: str) -> None:
    closed: list[bool] = []
    client, backend = _stream(b"")[0], _stream(b"")[0]
    socket = await websocket.accept(client, "/exec", HANDSHAKE, None)
    client.writer.close = lambda: closed.append(True)  # type: ignore[method-assign]

    def fails() -> None:
        raise asyncio.CancelledError

    backend.writer.close = fails  # type: ignore[method-assign]
    backend.reader.feed_eof()
    spoken = channels.choose(["v5.channel.k8s.io"])
    assert spoken is not None
    sessions: dict[str, Callable[[], Awaitable[None]]] = {
        "exec": lambda: remote_command.translate(socket, spoken, backend, remote_command.StreamOptions(stdin=True)),
        "forward": lambda: port_forward.forward(socket, spoken, backend, [80]),
        "tunnel": lambda: port_forward.tunnel(socket, backend),
        "splice": lambda: splice(client, backend),
    }
    with pytest.raises(asyncio.CancelledError):
        await sessions[kind]()
    assert closed


async def test_a_transport_that_is_lost_already_is_not_aborted() -> None:
    class Gone(Writer):
        """asyncio's TLS transport, which forgets its protocol."""

        def abort(self) -> None:
            raise AttributeError("'NoneType' object has no attribute '_abort'")

    await Stream(asyncio.StreamReader(), cast(Any, Gone())).close()


def test_a_long_step_of_a_direction_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    shares = Shares("test of sessions", 0.2, 0.5, 60.0)

    async def long() -> None:
        end = time.process_time() + 5
        while time.process_time() < end:
            pass

    async def waiting() -> None:
        await asyncio.Event().wait()

    async def session() -> None:
        with sampling():
            await limited(run_until_first_ends(there=long(), back=waiting()), Limit(shares, "jane"))

    began = time.process_time()
    with caplog.at_level(logging.WARNING):
        asyncio.run(session())
    assert time.process_time() - began < 3
    assert "a session was closed: a step held the event loop too long" in caplog.text
    assert shares.delay("jane") > 0
