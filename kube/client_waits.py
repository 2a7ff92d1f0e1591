"""Waits on behalf of a client's request, which end when the client closes its connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from kube.errors import bad_request

T = TypeVar("T")


class Waiting(Protocol):
    """The connection of a client that waits."""

    @property
    def who(self) -> str:
        """The user that was identified on it, before that the address (kube/serving/table.py)."""
        ...

    @property
    def until_lost(self) -> Callable[[], Awaitable[None]]:
        """Wait until the connection is lost."""
        ...


class WaitingRequest(msgspec.Struct, frozen=True):
    """A request of an authenticated user that waits; `who` is its owner (kube/owners.py)."""

    who: str
    until_lost: Callable[[], Awaitable[None]]


async def while_connected(work: Awaitable[T], until_left: Callable[[], Awaitable[None]]) -> T:
    """Return what `work` returns; cancels it and raises 400 when the client leaves."""
    left = asyncio.ensure_future(until_left())
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as scope:

            def end(_: object) -> None:
                with contextlib.suppress(RuntimeError):  # the scope has ended
                    scope.reschedule(loop.time())

            left.add_done_callback(end)
            return await work
    except TimeoutError:
        if not scope.expired():
            raise
        raise bad_request("the client went away in the middle of its request") from None
    finally:
        left.cancel()
