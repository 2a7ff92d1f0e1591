"""Tasks that wait for each other, in round robin over their owners."""

from __future__ import annotations

import asyncio
from collections import deque


class _Queue(deque[asyncio.Future[None]]):
    """The waiters of one owner; `ahead`: those before all others; `from_end`: the last of the others is next."""

    from_end = False

    def __init__(self) -> None:
        super().__init__()
        self.ahead = deque[asyncio.Future[None]]()

    def next(self, *, newest: bool) -> asyncio.Future[None]:
        """Remove and return the next waiter."""
        if self.ahead:
            return self.ahead.popleft()
        waiter = self.pop() if self.from_end else self.popleft()
        self.from_end = newest and not self.from_end
        return waiter


class Waiters:
    """Waiters in round robin over their owners (addresses or users).

    Of one owner's the first comes first. With `newest` every second is the last one instead: where the client of a
    flood shares its address with others, these do not wait for all of the flood.
    """

    def __init__(self, *, newest: bool) -> None:
        self._newest = newest
        self._queues: dict[str, _Queue] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, owner: str, *, ahead: bool = False) -> asyncio.Future[None]:
        """Return a future that is done when it is the waiter's turn; `ahead`: before the owner's others."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(owner, _Queue())
        (queue.ahead if ahead else queue).append(waiter)
        return waiter

    def wake(self) -> bool:
        """Wake the next waiting task; False if there is none."""
        while self._queues:
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            waiter = queue.next(newest=self._newest)
            if queue or queue.ahead:
                self._queues[owner] = queue  # behind everybody else
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False
