"""Clients that are attached to containers, and the end of those that block the runtime.

containerd writes a container's output to its log and to the attached clients under one lock. A client that does not read
blocks it: the container is not stopped then, not even by SIGKILL, and its log cannot be reopened. So the agent, through which
all clients attach, ends the sessions of a container that has had its grace period, and those that block its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from functools import partial

log = logging.getLogger(__name__)

DRAIN_SECONDS = 2.0
"""Time after the grace period in which clients that read receive the last output of a container that ends."""
BLOCKED_SECONDS = 5.0
"""Time that a call about a container's log may take before the sessions of clients that do not read are ended."""
CLOSE_SECONDS = 5.0
"""Time that a client has to receive the end of its session before its connection is aborted."""


class ContainerStopping(Exception):
    """The container has had its grace period: nobody attaches to it any more."""


class AttachedClient:
    """One session: its connection to the runtime, and the one to the client."""

    def __init__(self) -> None:
        self._ended = False
        self._runtime: asyncio.StreamWriter | None = None
        self._client: asyncio.StreamWriter | None = None

    def connected(self, runtime: asyncio.StreamWriter) -> None:
        """Record the connection to the runtime's streaming server."""
        self._runtime = runtime
        if self._ended:
            runtime.transport.abort()

    def accepted(self, client: asyncio.StreamWriter) -> None:
        """Record the connection to the client."""
        self._client = client
        if self._ended:
            client.transport.abort()

    @property
    def unread(self) -> bool:
        """The client has not received all that was sent to it."""
        return self._client is not None and self._client.transport.get_write_buffer_size() > 0

    def end(self) -> None:
        """Abort the connection to the runtime at once, and the one to a client that does not receive the end in time."""
        self._ended = True
        if self._runtime is not None:
            self._runtime.transport.abort()
        if (client := self._client) is not None:
            # The transport is read when the time is over: one that has been closed since ignores it.
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, lambda: client.transport.abort())


class AttachedClients:
    """The attached clients of this node's containers, by container ID."""

    def __init__(self) -> None:
        self._clients: dict[str, set[AttachedClient]] = {}
        self._stopping: set[str] = set()

    @contextlib.contextmanager
    def attach(self, container_id: str) -> Iterator[AttachedClient]:
        """Register a session until it ends. Raise ContainerStopping."""
        if container_id in self._stopping:
            raise ContainerStopping(f"container {container_id} is being stopped")
        client = AttachedClient()
        self._clients.setdefault(container_id, set()).add(client)
        try:
            yield client
        finally:
            found = self._clients[container_id]
            found.discard(client)
            if not found:
                del self._clients[container_id]

    @contextlib.contextmanager
    def ended_after(self, container_id: str, seconds: float) -> Iterator[None]:
        """End the container's sessions when the block has run for so long, and begin none until its end."""
        timer = asyncio.get_running_loop().call_later(seconds, self._stop, container_id)
        try:
            yield
        finally:
            timer.cancel()
            self._stopping.discard(container_id)

    @contextlib.contextmanager
    def unblocked(self, container_id: str) -> Iterator[None]:
        """End sessions that block a call about the container's log: first those whose client does not read, then all."""
        loop = asyncio.get_running_loop()
        timers = [
            loop.call_later(seconds, partial(self._unblock, container_id, only_unread=only_unread))
            for seconds, only_unread in ((BLOCKED_SECONDS, True), (2 * BLOCKED_SECONDS, False))
        ]
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    def _unblock(self, container_id: str, *, only_unread: bool) -> None:
        if number := self.end(container_id, only_unread=only_unread):
            log.info("ended %d attach sessions of container %s, which blocked its log", number, container_id)

    def _stop(self, container_id: str) -> None:
        self._stopping.add(container_id)
        if number := self.end(container_id):
            log.info("ended %d attach sessions of container %s, which is being stopped", number, container_id)

    def end(self, container_id: str, *, only_unread: bool = False) -> int:
        """End the container's sessions, or only those whose client does not read; return their number."""
        found = [each for each in self._clients.get(container_id, ()) if each.unread or not only_unread]
        for each in found:
            each.end()
        return len(found)
