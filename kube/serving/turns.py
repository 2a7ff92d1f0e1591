"""Turns in which large answers are written, a few in each round of the event loop and one after the other for each owner.

To encrypt and write a piece takes a fraction of a millisecond. Where hundreds of clients have just begun a watch or a list, one
round of the loop would do that for all of them, and who asks for a health check would wait for several such rounds.
"""

from __future__ import annotations

import asyncio
from collections import deque

ROUND = 4
"""Pieces written in one round of the loop."""


class Turns:
    """The turns of one listener. An owner (an address or a user) that waits has one when all others have had theirs."""

    def __init__(self) -> None:
        self._left = ROUND
        self._counting = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def take(self, owner: str) -> None:
        """Return at once, or in a later round where this one has had enough."""
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        await turn

    def _next_round(self) -> None:
        self._left, self._counting = ROUND, False
        while self._left and self._waiting:
            owner = next(iter(self._waiting))
            queue = self._waiting.pop(owner)
            turn = queue.popleft()
            if queue:
                self._waiting[owner] = queue  # behind everybody else
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._waiting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._next_round)
