"""Turns in which large answers are written and TLS handshakes go on: a few in each round of the event loop, by owner in turn.

To encrypt and write a piece takes a fraction of a millisecond, a handshake one or two. Where hundreds of clients have just
begun a watch or connected, one round of the loop would do that for all of them, and every request would wait for several such
rounds.
"""

from __future__ import annotations

import asyncio
from collections import deque

ROUND = 4
"""Pieces written, handshakes begun, or handshakes gone on with in one round of the loop. A handshake takes 0.8 ms, and later
1 ms more for a client certificate; with one a round new clients would wait too long where rounds are full of other work."""

LONG_ROUND = 64
"""The same in a round that follows one which took long."""


class _Queue(deque[asyncio.Future[None]]):
    """The waiting of one owner; `from_end`: the last one has the next turn."""

    from_end = False


class Turns:
    """The turns of one listener. An owner (an address or a user) that waits has one when all others have had theirs.

    Of one owner's the first comes first. With `newest` every second turn is that of the last one instead: where the client of a
    flood shares its address with others, these do not wait for all of the flood.
    """

    def __init__(self, most: int = ROUND, *, newest: bool = False, each: float = 0.0) -> None:
        """`most`: turns in a round of the loop.

        With `each`, in seconds, there is one for each of these spans that the round before took, if that is more, up to
        `LONG_ROUND`: what waits keeps its share of the processor where rounds are long.
        """
        self._left = self._most = most
        self._newest, self._each = newest, each
        self._began = 0.0
        self._counting = False
        self._waiting: dict[str, _Queue] = {}

    async def take(self, owner: str) -> None:
        """Return at once, or in a later round where this one has had enough."""
        if not self._counting:
            loop = asyncio.get_running_loop()
            self._counting, self._began = True, loop.time()
            loop.call_soon(self._next_round)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, _Queue()).append(turn)
        await turn

    def _next_round(self) -> None:
        loop = asyncio.get_running_loop()
        took, self._began = loop.time() - self._began, loop.time()
        self._left, self._counting = self._most, False
        if self._each:
            self._left = max(self._most, min(int(took / self._each), LONG_ROUND))
        while self._left and self._waiting:
            owner = next(iter(self._waiting))
            queue = self._waiting.pop(owner)
            turn = queue.pop() if queue.from_end else queue.popleft()
            queue.from_end = self._newest and not queue.from_end
            if queue:
                self._waiting[owner] = queue  # behind everybody else
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._waiting:
            self._counting = True
            loop.call_soon(self._next_round)
