"""Back-off of policies whose rules could not be written. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from kube.clock import Clock

FIRST_RETRY, LAST_RETRY = 10.0, 600.0
"""Seconds until a closed policy is retried: the first and the longest. Each failure doubles them."""


@dataclass(slots=True)
class _Closed:
    tried_at: float
    delay: float
    retry_at: float


class Retries:
    """The back-off of one family's closed policies, and of those that are being retried."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Closed] = {}

    def failed(self, key: str) -> bool:
        """Note a failure of a policy; return whether it is its first."""
        now, known = self._clock.monotonic(), self._known.get(key)
        delay = min(known.delay * 2, LAST_RETRY) if known else FIRST_RETRY
        self._known[key] = _Closed(now, delay, now + delay)
        return known is None

    def changed(self, key: str) -> bool:
        """Return whether a changed policy may be tried at once; one that failed repeatedly waits `FIRST_RETRY` after a try."""
        known = self._known.get(key)
        if known is None or known.delay == FIRST_RETRY:
            return True
        known.retry_at = min(known.retry_at, known.tried_at + FIRST_RETRY)
        return False

    def next_key(self, closed: frozenset[str]) -> str:
        """Return the closed policy whose back-off ended first, "" where none has ended."""
        keys = [key for key in closed if key in self._known]
        first = min(keys, key=lambda key: (self._known[key].retry_at, key), default="")
        return first if first and self._known[first].retry_at <= self._clock.monotonic() else ""

    def forget(self, key: str) -> None:
        """Forget a deleted policy."""
        self._known.pop(key, None)

    def written(self, closed: frozenset[str]) -> None:
        """Note a successful write without the policies in `closed`; forget all others."""
        self._known = {key: known for key, known in self._known.items() if key in closed}
