"""Rate limit by source: a burst, and then an amount per second."""

from __future__ import annotations

LONGEST = 10.0
"""Default maximum delay in seconds: less than the timeout of a request's head."""


class Rate:
    """A token bucket for each owner; with each charge one that is full again is forgotten."""

    def __init__(self, burst: float, a_second: float, longest: float = LONGEST) -> None:
        self._burst, self._rate, self._longest = burst, a_second, longest
        self._used: dict[str, tuple[float, float]] = {}
        """Used part of each owner's burst, and the time of that measurement."""

    def __len__(self) -> int:
        return len(self._used)

    def charge(self, owner: str, amount: float, now: float) -> None:
        """Take an amount from an owner's bucket, also when it is empty."""
        most = self._burst + self._rate * self._longest
        self._used[owner] = min(self._left(owner, now) + amount, most), now
        self._left(next(iter(self._used)), now)

    def delay(self, owner: str, now: float) -> float:
        """Return the seconds until an owner's bucket is not empty any more."""
        return max(0.0, (self._left(owner, now) - self._burst) / self._rate)

    def _left(self, owner: str, now: float) -> float:
        used, since = self._used.pop(owner, (0.0, now))
        left = max(0.0, used - (now - since) * self._rate)
        if left:
            self._used[owner] = used, since  # behind the others, which are looked at before it is again
        return left
