"""Questions that wait for the host's resolvers, with a limit for each client and for all.

A full table makes room for a new question by cancelling the oldest one of the client with the most: a few clients whose
questions nobody answers take the places of no others. A new question of that client itself takes the place of its oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
MAX_WAITING = 1000
MAX_WAITING_CLIENT = 250
"""Maximum number of waiting queries of one client: further ones are dropped, and clients retry them."""


class WaitingQueries:
    """Tasks by the address of the client, oldest first."""

    def __init__(self, most: int = MAX_WAITING, most_of_client: int = MAX_WAITING_CLIENT) -> None:
        self._most, self._most_of_client = most, most_of_client
        self._clients: dict[str, dict[asyncio.Task[Any], None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def start(self, client: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
        """Start work on a client's question; None if too many of its questions wait."""
        own = self._clients.get(client, {})
        if len(own) >= self._most_of_client:
            work.close()
            return None
        if self._count >= self._most:
            self._cancel_oldest(client)
        task = asyncio.create_task(work, name="dns question of a client")
        self._clients.setdefault(client, {})[task] = None
        self._count += 1
        task.add_done_callback(lambda done: self._remove(client, done))
        return task

    def close(self) -> None:
        """Cancel all."""
        for tasks in tuple(self._clients.values()):
            for task in tuple(tasks):
                task.cancel()

    def _cancel_oldest(self, newcomer: str) -> None:
        client = max(self._clients, key=lambda each: (len(self._clients[each]), each == newcomer))
        task = next(iter(self._clients[client]))
        self._remove(client, task)
        task.cancel()

    def _remove(self, client: str, task: asyncio.Task[Any]) -> None:
        tasks = self._clients.get(client, {})
        if task in tasks:
            del tasks[task]
            self._count -= 1
            if not tasks:
                del self._clients[client]
