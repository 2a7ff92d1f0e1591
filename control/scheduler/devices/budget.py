"""Limits of one attempt to schedule a pod on the search for devices, over all nodes: time, and cost of CEL.

A search can take exponentially long, and each of a claim's selectors may cost a million units on each device. It does
not block others (attempt.py), but takes CPU time of the process. Results of selectors are cached, so the next attempt gets
further.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

SECONDS = 1.0
"""Time that an attempt may search by default (upstream's filterTimeout, which is for each node)."""
COST = 5_000_000
"""Units of CEL cost that an attempt may spend: five times what one selector may on one device, 50,000 ordinary ones."""


class SearchTimeout(Exception):
    """The search took too long, or its selectors cost too much."""


class SearchBudget:
    """Time passes only inside `with`; `now` returns seconds. `owner` is the namespace that selectors are evaluated for."""

    def __init__(
        self,
        seconds: float = SECONDS,
        cost: int = COST,
        now: Callable[[], float] = time.monotonic,
        *,
        owner: str = "",
    ) -> None:
        self._seconds, self._cost, self._now = seconds, cost, now
        self.owner = owner
        self._until = 0.0

    def __enter__(self) -> None:
        self._until = self._now() + self._seconds

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds = self._until - self._now()

    def check(self) -> None:
        """Raise SearchTimeout if nothing is left."""
        if self._cost <= 0 or self._now() > self._until:
            raise SearchTimeout("timed out trying to allocate devices")

    def charge(self, cost: int) -> None:
        """Take what an evaluation has cost."""
        self._cost -= cost
