"""End of the sessions that are attached to a container: the time, and both connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from agent import attached_clients
from agent.attached_clients import AttachedClient, AttachedClients, ContainerStopping


class Connections:
    """The two connections of a session, and their far ends."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self._sockets: list[socket.socket] = []

    async def open(self) -> tuple[asyncio.StreamWriter, socket.socket]:
        near, far = socket.socketpair()
        far.setblocking(False)
        _, writer = await asyncio.open_connection(sock=near)
        self.writers.append(writer)
        self._sockets.append(far)
        return writer, far

    async def attach(self, client: AttachedClient, *, reads: bool = True) -> tuple[socket.socket, socket.socket]:
        """Connect a session; a client that does not read has output that waits for it."""
        to_runtime, runtime = await self.open()
        client.connected(to_runtime)
        to_client, far = await self.open()
        client.accepted(to_client)
        if not reads:
            to_client.write(b"x" * (4 << 20))
        return runtime, far

    @contextlib.asynccontextmanager
    async def two_clients(self, clients: AttachedClients) -> AsyncIterator[tuple[socket.socket, socket.socket]]:
        """Attach a client that reads to the container `c`, and one that does not; yield the runtime's ends of both."""
        with clients.attach("c") as reads, clients.attach("c") as blocks:
            of_reading, _ = await self.attach(reads)
            of_blocking, _ = await self.attach(blocks, reads=False)
            yield of_reading, of_blocking

    def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        for far in self._sockets:
            far.close()


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    found = Connections()
    yield found
    found.close()


async def closed(far: socket.socket) -> bool:
    """Return whether the near end is closed; what it sent before is read."""
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(far, 1 << 20):
                pass
    return True


def is_open(far: socket.socket) -> bool:
    try:
        return bool(far.recv(1 << 20))
    except BlockingIOError:
        return True


async def test_a_container_that_is_not_stopped_in_time_loses_its_clients_and_gets_no_new_ones(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_clients, "CLOSE_SECONDS", 0.01)
    clients = AttachedClients()
    with clients.attach("stopping") as client, clients.attach("other") as another:
        runtime, far = await connections.attach(client, reads=False)
        other, _ = await connections.attach(another)
        with clients.ended_after("stopping", 0.01):
            assert await closed(runtime)
            with pytest.raises(ContainerStopping), clients.attach("stopping"):
                pass
            assert await closed(far), "a client that does not read keeps its connection"
        assert is_open(other)
    with clients.attach("stopping"):
        pass  # a container whose stop failed is retried, and sessions may begin meanwhile


async def test_a_container_that_stops_in_time_ends_its_sessions_itself(connections: Connections) -> None:
    clients = AttachedClients()
    with clients.attach("c") as client:
        runtime, _ = await connections.attach(client, reads=False)
        with clients.ended_after("c", 0.05):
            pass
        await asyncio.sleep(0.1)  # a timer that was not cancelled would have ended the session by now
        assert is_open(runtime)


async def test_only_clients_that_do_not_read_are_ended_for_a_log(connections: Connections) -> None:
    clients = AttachedClients()
    async with connections.two_clients(clients) as (kept, ended):
        assert clients.end("c", only_unread=True) == 1
        assert await closed(ended) and is_open(kept)
        assert clients.end("c") == 2
        assert await closed(kept)
    assert clients.end("c") == 0


async def test_a_session_that_is_connected_after_its_end_is_closed(connections: Connections) -> None:
    clients = AttachedClients()
    with clients.attach("c") as client:
        clients.end("c")
        runtime, far = await connections.attach(client)
        assert await closed(runtime) and await closed(far)


async def test_a_very_long_grace_period_is_no_error(connections: Connections) -> None:
    with AttachedClients().ended_after("c", float(2**63)):
        pass


async def test_a_blocked_log_costs_the_clients_that_do_not_read_first(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_clients, "BLOCKED_SECONDS", 0.05)
    clients = AttachedClients()
    async with connections.two_clients(clients) as (kept, ended):
        with clients.unblocked("c"):
            assert await closed(ended)
        assert is_open(kept)
        with clients.unblocked("c"):
            assert await closed(kept), "the runtime is blocked all the same"
