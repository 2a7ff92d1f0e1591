"""A priority level: its seats, and the queues in which those wait who find none.

A flow (one user's or one namespace's requests under a schema) is dealt a hand of queues by its hash and waits in the shortest
of them, so that a flow that floods its queues leaves others theirs. Queues are served fairly by the seats they have had (the
start times of upstream's fair queuing, with a request's width as its cost). A level that has used up its own seats
borrows what others lend and do not use.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from control.fairness.waiting_levels import WaitingLevels
from control.fairness.wide_requests import WideRequests
from kube import errors
from kube.json_object import Object

BUSY = "Too many requests, please try again later."
RETRY_SECONDS = 1
IDLE_QUEUES = 256
"""The number of empty queues that are kept with the seats that they have had, beside twice those who wait."""


class Refused(errors.StatusError):
    """429; `why` is what the metrics call it: queue-full, concurrency-limit or time-out."""

    def __init__(self, why: str) -> None:
        super().__init__(429, "TooManyRequests", BUSY, {"retryAfterSeconds": RETRY_SECONDS})
        self.why = why


class Waiter(msgspec.Struct):
    """A request in a queue: the future that starts it, its seats, and its description for the debug endpoints."""

    future: asyncio.Future[None]
    width: int
    since: float
    about: Any


class Queue:
    """Requests that wait, and the seats that those before them have had."""

    __slots__ = ("served", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Waiter] = deque()
        self.served = 0.0


class PriorityLevel:
    """`may_borrow` returns whether the server as a whole has seats left for a request of a width."""

    def __init__(
        self,
        config: Object,
        nominal: int,
        wide_requests: WideRequests,
        waiting_levels: WaitingLevels,
        may_borrow: Callable[[PriorityLevel, int], bool],
    ) -> None:
        spec = config.get("spec") or {}
        limited = spec.get("limited") or {}
        response = limited.get("limitResponse") or {}
        queuing = response.get("queuing") or {}
        self.name: str = config["metadata"]["name"]
        self.uid: str = config["metadata"].get("uid", "")
        self.exempt = spec.get("type") == "Exempt"
        self.nominal = nominal
        self.reserved = nominal - nominal * int(limited.get("lendablePercent") or 0) // 100
        limit = limited.get("borrowingLimitPercent")
        self.most = None if limit is None else nominal + nominal * limit // 100
        self.rejects = response.get("type") != "Queue"
        self.hand_size = int(queuing.get("handSize") or 1)
        self.queue_length = int(queuing.get("queueLengthLimit") or 50)
        self.queues = 1 if self.rejects else int(queuing.get("queues") or 1)
        self.lines: dict[int, Queue] = {}
        """The queues in use by number: a configuration may have ten million."""
        self._wide_requests, self._waiting_levels, self._may_borrow = wide_requests, waiting_levels, may_borrow
        self._clock = 0.0
        self.executing = self.waiting = self.dispatched = 0

    def hand(self, flow: str) -> tuple[int, ...]:
        """Return the queues a flow may wait in: as many different ones as a hand holds, by the flow's hash."""
        value = int.from_bytes(hashlib.sha256(flow.encode()).digest()[:16], "big")
        cards: list[int] = []
        for dealt in range(min(self.hand_size, self.queues)):
            value, card = divmod(value, self.queues - dealt)
            for taken in sorted(cards):  # of those left it is the one at this place
                card += card >= taken
            cards.append(card)
        return tuple(cards)

    def enter(self, width: int) -> bool:
        """Take a seat if one is free and no other request waits."""
        if self.exempt:
            self.executing += 1
            return True
        if width == 1 and not self.waiting and self._room(1):
            self.executing += 1
            self.dispatched += 1
            return True
        return False

    def leave(self, width: int) -> None:
        """Give seats back."""
        self.executing -= 1 if self.exempt else width
        if self.waiting:
            self._waiting_levels.add(self)
        self._waiting_levels.dispatch()

    async def wait(self, hand: tuple[int, ...], width: int, limit: float, about: Any = None) -> None:
        """Wait for seats, at most `limit` seconds; raises Refused if the queue is full or the wait too long.

        `about` is what is shown of the request to those who look at the queues.
        """
        if self.rejects and not self._room(width):
            raise Refused("concurrency-limit")
        queue = self._shortest(hand)
        if len(queue.waiting) >= self.queue_length:
            raise Refused("queue-full")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not queue.waiting:
            queue.served = max(queue.served, self._clock)
        waiter = Waiter(future, width, time.time(), about)
        queue.waiting.append(waiter)
        self.waiting += 1
        self.dispatch()
        if future.done():
            return
        try:
            async with asyncio.timeout(limit):
                await future
        except TimeoutError:
            if future.done() and not future.cancelled():
                return  # its turn came in the last moment
            self._forget(queue, waiter)
            raise Refused("time-out") from None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(width)
            else:
                self._forget(queue, waiter)
            raise

    def _shortest(self, hand: tuple[int, ...]) -> Queue:
        if len(self.lines) > IDLE_QUEUES + 2 * self.waiting:
            self.lines = {number: queue for number, queue in self.lines.items() if queue.waiting}
        lines = self.lines
        shortest = min(hand, key=lambda number: len(lines[number].waiting) if number in lines else 0)
        return lines.setdefault(shortest, Queue())

    def _forget(self, queue: Queue, waiter: Waiter) -> None:
        if waiter in queue.waiting:
            queue.waiting.remove(waiter)
            self.waiting -= 1

    def dispatch(self) -> None:
        """Seat those who can be seated, from the queue that has had least."""
        while self.waiting:
            queue = min((q for q in self.lines.values() if q.waiting), key=lambda q: q.served)
            first = queue.waiting[0]
            if first.future.done():  # it was cancelled in the same iteration of the event loop
                self._forget(queue, first)
                continue
            width = first.width
            if not self._room(width):
                self._waiting_levels.add(self)
                return
            if width > 1 and not self._wide_requests.reserve():
                self._wide_requests.queue(self)
                return
            queue.waiting.popleft()
            self.waiting -= 1
            self._clock = queue.served
            queue.served += width
            self.executing += width
            self.dispatched += 1
            first.future.set_result(None)

    def _room(self, width: int) -> bool:
        """Return whether there are seats. A wide request may take the last free one, or it would wait for ever."""
        if self.executing < self.nominal:
            return True
        if self.most is not None and self.executing + width > self.most:
            return False
        return self._may_borrow(self, width)
