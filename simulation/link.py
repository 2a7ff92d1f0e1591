"""The network between simulated processes: requests and watches with latency, loss and cuts.

A request runs in the server's process, and its caller waits for the answer that comes back. It may be lost on its way to the
server, and then has no effect, or on its way back, and then has one that the caller does not know about. Callers get what
kube/transport.py raises for a connection that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kube.client import Response, Transport
from kube.errors import StatusError
from kube.errors import timeout as timed_out
from simulation.origin import ORIGIN, Origin
from simulation.processes import Process, current

T = TypeVar("T")
UNNOTICED_SECONDS = 15.0
"""Time after which a client notices that the other side is gone without a word."""


class Network(msgspec.Struct):
    """Loss, delay and partitions of messages; changed by the faults."""

    rng: random.Random
    lost: float = 0.0
    """Probability that a request is lost, half of them on the way back."""
    cut: float = 0.0
    """Probability that a watch is cut, for each of its chunks."""
    slow: float = 0.0
    """Probability that a message takes up to seconds."""
    partitioned: set[str] = msgspec.field(default_factory=set)
    """Names of processes that nothing reaches, and that reach nothing."""
    late: set[str] = msgspec.field(default_factory=set)
    """Names of members that the store's watch sends nothing to."""
    sent: list[Callable[[Origin], None]] = msgspec.field(default_factory=list)
    """Functions that are called with each request when it is sent."""

    def latency(self) -> float:
        """Return how many seconds a message takes."""
        if self.slow and self.rng.random() < self.slow:
            return self.rng.uniform(0.01, 5.0)
        return self.rng.uniform(0.0002, 0.002)

    def joins(self, one: str, other: str) -> bool:
        """Return whether messages pass between two processes."""
        return one not in self.partitioned and other not in self.partitioned


class Server(Protocol):
    """A process that serves requests."""

    process: Process

    def transport(self, user: Any, agent: str) -> Transport:
        """Return the transport into the process, which raises StatusError 503 while it does not serve."""
        ...


class Link:
    """A `kube.client.Transport` of one user from the process that calls to the server that `server` returns."""

    def __init__(self, network: Network, server: Callable[[], Server | None], user: Any, agent: str) -> None:
        self._network, self._server, self._user, self._agent = network, server, user, agent

    async def close(self) -> None:
        """There is no connection."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Response:
        """Send a request and return the answer. Raise StatusError."""
        origin = Origin(method, path, self._agent, current(), asyncio.get_running_loop().time())
        for listener in self._network.sent:
            listener(origin)
        server = await self._reach()
        network = self._network
        lost = network.rng.random() < network.lost
        lost_before = lost and network.rng.random() < 0.5
        await asyncio.sleep(network.latency())
        if lost_before:
            raise _broken("connection reset")
        answer = in_process(
            server.process,
            lambda: server.transport(self._user, self._agent).request(
                method, path, query=query, headers=headers, body=body, timeout=timeout, most_bytes=most_bytes
            ),
        )
        token = ORIGIN.set(msgspec.structs.replace(origin, server=server.process.name))
        try:
            async with asyncio.timeout(timeout):
                response = await answer
                await asyncio.sleep(network.latency())
        except TimeoutError:
            raise timed_out(f"no answer to {method} {path} within {timeout} seconds") from None
        finally:
            ORIGIN.reset(token)
        if lost or not self._joined(server):
            raise _broken("connection reset before the answer")
        return response

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """GET a long answer in chunks. Raise StatusError."""
        server = await self._reach()
        await asyncio.sleep(self._network.latency())
        chunks: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def read() -> None:
            try:
                transport = server.transport(self._user, self._agent)
                async with transport.stream(path, query=query) as found:
                    _settle(begun, None)
                    async for chunk in found:
                        chunks.put_nowait(chunk)
                chunks.put_nowait(None)
            except Exception as error:
                _settle(begun, error)
                chunks.put_nowait(error)

        def ended() -> None:
            _settle(begun, _broken("connection refused"))
            chunks.put_nowait(_broken("connection reset"))

        task = server.process.start(read(), "watch")
        revoke = server.process.on_end(ended)
        try:
            await begun
            yield self._received(server, chunks)
        finally:
            revoke()
            task.cancel()

    async def _received(self, server: Server, chunks: asyncio.Queue[bytes | Exception | None]) -> AsyncIterator[bytes]:
        network = self._network
        while True:
            chunk = await chunks.get()
            await asyncio.sleep(network.latency())
            if not self._joined(server):
                await asyncio.sleep(UNNOTICED_SECONDS)
                raise _broken("no answer to pings")
            if network.cut and network.rng.random() < network.cut:
                raise _broken("connection reset")
            if chunk is None:
                return
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def _reach(self) -> Server:
        server = self._server()
        if server is None or not server.process.alive:
            await asyncio.sleep(self._network.latency())
            raise _broken("connection refused")
        if not self._joined(server):
            await asyncio.sleep(UNNOTICED_SECONDS)
            raise _broken("no route to host")
        return server

    def _joined(self, server: Server) -> bool:
        mine = current()
        return mine is None or self._network.joins(mine.name, server.process.name)


async def in_process(process: Process, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a process and return its result; raise StatusError when the process ends."""
    result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            found = await work()
        except Exception as error:
            _settle(result, error)
        else:
            if not result.done():
                result.set_result(found)

    process.start(run(), "request")
    revoke = process.on_end(lambda: _settle(result, _broken("connection reset")))
    try:
        return await result
    finally:
        revoke()


def _settle(future: asyncio.Future[Any], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # perhaps nobody waits for it any more


def _broken(why: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", f"cannot reach the API server: {why}")
