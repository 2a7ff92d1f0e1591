"""Places for requests to one server: so many at a time, in round robin over the owners of those that wait.

In one line for all, the requests of a client that sends many would delay everybody else's, and time out while they wait. An
owner (an address before authentication, a user after it) has at most a part of the places, and a part of the line of its own,
in which a request waits for a limited time. A request that gets no place is not sent: `NoPlace` says so, which is not a failure
of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class NoPlace(Exception):
    """A request was not sent: too many of its owner's wait, or it waited for too long."""


class _Owner:
    """Places that an owner has taken, and its waiters in order."""

    __slots__ = ("taken", "waiting")

    def __init__(self) -> None:
        self.taken = 0
        self.waiting: dict[asyncio.Future[None], None] = {}


class FairPlaces:
    """`places` in all and `each` of one owner; of an owner at most `waiting` requests wait, for at most `seconds`.

    `seconds` is None if they wait for as long as it takes.
    """

    def __init__(self, places: int, each: int, waiting: int, seconds: float | None) -> None:
        self._free, self._each, self._most, self._seconds = places, each, waiting, seconds
        self._owners: dict[str, _Owner] = {}
        self._line: dict[str, _Owner] = {}
        """Owners with waiters; the first that may take a place is next."""

    def waiting(self, owner: str) -> int:
        """Return how many requests of an owner wait."""
        found = self._owners.get(owner)
        return len(found.waiting) if found is not None else 0

    @contextlib.asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """Wait for a place and hold it until the block ends. Raises NoPlace."""
        await self._enter(owner)
        try:
            yield
        finally:
            self._leave(owner)

    async def _enter(self, owner: str) -> None:
        mine = self._owners.get(owner)
        if mine is None:
            mine = self._owners[owner] = _Owner()
        if self._free and mine.taken < self._each and not mine.waiting:
            self._free -= 1
            mine.taken += 1
            return
        if len(mine.waiting) >= self._most:
            raise NoPlace(f"{self._most} requests of {owner!r} wait already")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine.waiting[waiter] = None
        self._line.setdefault(owner, mine)
        try:
            async with asyncio.timeout(self._seconds):
                await waiter
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter.done() and not waiter.cancelled():  # it was given a place in the same iteration
                self._leave(owner)
            else:
                mine.waiting.pop(waiter, None)
                self._forget(owner, mine)
            if isinstance(error, TimeoutError):
                raise NoPlace(f"no place became free within {self._seconds:g} s") from None
            raise

    def _leave(self, owner: str) -> None:
        mine = self._owners[owner]
        mine.taken -= 1
        self._free += 1
        self._forget(owner, mine)
        while self._free and self._wake():
            pass

    def _wake(self) -> bool:
        """Give a place to the next waiter whose owner may have one more; False if there is none."""
        owner = next((owner for owner, mine in self._line.items() if mine.taken < self._each), None)
        if owner is None:
            return False
        mine = self._line.pop(owner)
        waiter = next(iter(mine.waiting))
        del mine.waiting[waiter]
        if mine.waiting:
            self._line[owner] = mine  # behind everybody else
        if waiter.done():  # it was cancelled in the same iteration
            self._forget(owner, mine)
            return True
        mine.taken += 1
        self._free -= 1
        waiter.set_result(None)
        return True

    def _forget(self, owner: str, mine: _Owner) -> None:
        if mine.waiting:
            return
        # Others of that owner may have come meanwhile, with an entry of their own.
        if self._line.get(owner) is mine:
            del self._line[owner]
        if not mine.taken and self._owners.get(owner) is mine:
            del self._owners[owner]
