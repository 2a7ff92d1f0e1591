"""Which policies the kernel did not take, and when each is tried again. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from kube.clock import Clock

FIRST_RETRY, LAST_RETRY = 10.0, 600.0
"""Seconds until a closed policy is tried again: the first time, and at most; the time doubles with each failure."""


@dataclass(slots=True)
class _Closed:
    tried_at: float
    delay: float
    retry_at: float


class Retries:
    """One family's policies that are closed, or were and are being tried."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Closed] = {}

    def failed(self, key: str) -> bool:
        """Take in that a policy was not taken; return whether that is new."""
        now, known = self._clock.monotonic(), self._known.get(key)
        delay = min(known.delay * 2, LAST_RETRY) if known else FIRST_RETRY
        self._known[key] = _Closed(now, delay, now + delay)
        return known is None

    def changed(self, key: str) -> bool:
        """Tell whether a policy that was changed may be tried at once; one that failed again and again is so a little later."""
        known = self._known.get(key)
        if known is None or known.delay == FIRST_RETRY:
            return True
        known.retry_at = min(known.retry_at, known.tried_at + FIRST_RETRY)
        return False

    def due(self, closed: frozenset[str]) -> str:
        """Return the closed policy whose turn is next, "" where none's is."""
        keys = [key for key in closed if key in self._known]
        first = min(keys, key=lambda key: (self._known[key].retry_at, key), default="")
        return first if first and self._known[first].retry_at <= self._clock.monotonic() else ""

    def forget(self, key: str) -> None:
        """Take in that a policy is deleted."""
        self._known.pop(key, None)

    def taken(self, closed: frozenset[str]) -> None:
        """Take in a write that was taken without the policies that are closed."""
        self._known = {key: known for key, known in self._known.items() if key in closed}
