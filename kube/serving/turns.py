"""Turns in which large answers are written and connections get their TLS: a few in each round of the event loop (`Turns`), and
in which handshakes are computed in threads (`Slots`); by owner in turn.

To encrypt and write a piece takes a fraction of a millisecond, and so does what a handshake needs on the event loop. Where
hundreds of clients have just begun a watch or connected, one round of the loop would do that for all of them, and every request
would wait for several such rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

ROUND = 4
"""Pieces written or handshakes begun in one round of the loop. With one a round, new clients would wait too long where rounds
are full of other work."""

LONG_ROUND = 64
"""The same in a round that follows one which took long."""


class _Queue(deque[asyncio.Future[None]]):
    """The waiting of one owner; `from_end`: the last one has the next turn."""

    from_end = False


class _Waiting:
    """Those who wait for a turn. An owner (an address or a user) has one when all others have had theirs.

    Of one owner's the first comes first. With `newest` every second turn is that of the last one instead: where the client of a
    flood shares its address with others, these do not wait for all of the flood.
    """

    def __init__(self, newest: bool) -> None:
        self._newest = newest
        self._queues: dict[str, _Queue] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, owner: str) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, _Queue()).append(turn)
        return turn

    def wake(self) -> bool:
        """Give the next one its turn; False where nobody waits any more."""
        while self._queues:
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            turn = queue.pop() if queue.from_end else queue.popleft()
            queue.from_end = self._newest and not queue.from_end
            if queue:
                self._queues[owner] = queue  # behind everybody else
            if not turn.done():
                turn.set_result(None)
                return True
        return False


class Turns:
    """The turns of one listener: so many in a round of the event loop."""

    def __init__(self, most: int = ROUND, *, newest: bool = False, each: float = 0.0) -> None:
        """`most`: turns in a round of the loop; `newest`: see `_Waiting`.

        With `each`, in seconds, there is one for each of these spans that the round before took, if that is more, up to
        `LONG_ROUND`: what waits keeps its share of the processor where rounds are long.
        """
        self._left = self._most = most
        self._each = each
        self._began = 0.0
        self._counting = False
        self._waiting = _Waiting(newest)

    async def take(self, owner: str) -> None:
        """Return at once, or in a later round where this one has had enough."""
        if not self._counting:
            loop = asyncio.get_running_loop()
            self._counting, self._began = True, loop.time()
            loop.call_soon(self._next_round)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return
        await self._waiting.add(owner)

    def _next_round(self) -> None:
        loop = asyncio.get_running_loop()
        took, self._began = loop.time() - self._began, loop.time()
        self._left, self._counting = self._most, False
        if self._each:
            self._left = max(self._most, min(int(took / self._each), LONG_ROUND))
        while self._left and self._waiting.wake():
            self._left -= 1
        if self._waiting:
            self._counting = True
            loop.call_soon(self._next_round)


class Slots:
    """The turns of work outside the event loop: so many at a time."""

    def __init__(self, most: int, *, newest: bool = False) -> None:
        """`newest`: see `_Waiting`."""
        self._free = most
        self._waiting = _Waiting(newest)

    @contextlib.asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it until the block ends."""
        if self._free:
            self._free -= 1
        else:
            turn = self._waiting.add(owner)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was given a slot in the same round
                    self._release()
                raise
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        if not self._waiting.wake():
            self._free += 1
