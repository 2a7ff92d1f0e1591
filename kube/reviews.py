"""Reviews of tokens and of permissions that are under way at one server.

Reviews have places of their own, which their owners share (kube/fair_places.py). Equal reviews of an owner take one place in
its line, and equal ones of several owners are sent once: whichever has a place first sends it. Those that nobody waits for any
more leave the line. One that has been sent is completed: to cancel it would close its connection, and the next would need
another TLS handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from kube.fair_places import FairPlaces, NoPlace

T = TypeVar("T")


class _Review(Generic[T]):
    """A review in line or under way."""

    __slots__ = ("sent", "task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[T] | None = None
        self.waiting = 0
        self.sent = False

    def wanted(self) -> bool:
        """Return whether anybody waits for it."""
        return self.waiting > 0


Send = Callable[[Callable[[], bool]], Coroutine[Any, Any, T]]
"""Sends a review; its argument returns whether anybody waits for it, without which it is not retried."""


class Reviews(Generic[T]):
    """Reviews by key, which is a digest of the question; an answer is anything but None."""

    def __init__(self, places: FairPlaces) -> None:
        self.places = places
        self._reviews: dict[tuple[str, bytes], _Review[T]] = {}
        self._sent: dict[bytes, _Review[T]] = {}

    async def ask(self, owner: str, key: bytes, known: Callable[[], T | None], send: Send[T]) -> T:
        """Return the answer of `send`, called at the owner's turn unless `known` has an answer by then.

        Raises NoPlace if it could not be sent, and what `send` raises.
        """
        review = self._reviews.get((owner, key))
        if review is None:
            review = self._reviews[owner, key] = _Review()
            work = self._review(review, owner, key, known, send)
            review.task = asyncio.create_task(work, name="review")
            review.task.add_done_callback(lambda task: self._ended(owner, key, task))
        return await self._answer(review, (owner, key))

    async def _answer(self, review: _Review[T], key: tuple[str, bytes] | None = None) -> T:
        assert review.task is not None
        review.waiting += 1
        try:
            return await asyncio.shield(review.task)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if review.task.cancelled() and waiter is not None and not waiter.cancelling():
                raise NoPlace("reviews have ended") from None
            raise
        finally:
            review.waiting -= 1
            if key is not None and not review.waiting and not review.sent and self._reviews.get(key) is review:
                del self._reviews[key]
                review.task.cancel()

    async def _review(
        self, review: _Review[T], owner: str, key: bytes, known: Callable[[], T | None], send: Send[T]
    ) -> T:
        async with self.places.place(owner):
            found = known()
            if found is not None:
                return found
            other = self._sent.get(key)
            if other is not None:
                return await self._answer(other)
            review.sent, self._sent[key] = True, review
            try:
                return await send(review.wanted)
            finally:
                del self._sent[key]

    def _ended(self, owner: str, key: bytes, task: asyncio.Task[T]) -> None:
        found = self._reviews.get((owner, key))
        if found is not None and found.task is task:
            del self._reviews[owner, key]
        if not task.cancelled():
            task.exception()  # nobody may be left to retrieve it

    async def close(self) -> None:
        """Cancel all that is in line or under way; those who wait get NoPlace."""
        tasks = [review.task for review in self._reviews.values() if review.task is not None]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
