"""Decides when the written rules have to be compared with those in the kernel.

A delta is computed from the shadow, without reading the kernel. Changes by other programs are checked every few seconds with
the writer's fingerprint, which lists no rule; where a fingerprint can miss a change (legacy iptables), everything is also
compared each period. Comparisons take at most a twentieth of the time, but are delayed by `MAX_DELAY` seconds at most.

Reading takes long with thousands of Services and blocks no write. A comparison begins when no write is under way and counts
only if nothing was written meanwhile. If writes invalidate one comparison after the other, the next one needs the lock
(`needs_lock`). A write in progress is in the shadow and not yet in the kernel: a repair would write it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from kube.clock import Clock

COST_RATIO = 20
"""Seconds between comparisons for each second that one takes."""
MAX_DELAY = 20.0
"""Seconds that a comparison is put off at most, however long it takes: what others did is repaired within 30 s."""
MAX_INVALIDATED = 2
"""Comparisons in a row that writes may invalidate before one must be made while nothing is written."""


class Comparison(NamedTuple):
    """The state in which reading began."""

    writes: int
    fingerprint: bytes
    started: float
    """On the monotonic clock."""


class DriftDetector:
    """Knows whether the kernel still holds what was last written. Every write goes through `writing`."""

    def __init__(self, fingerprint: Callable[[], bytes], clock: Clock, period: float | None = None) -> None:
        """`period` is the seconds between comparisons where the fingerprint can miss a change, None if it cannot."""
        self._read, self._clock, self._period = fingerprint, clock, period
        self._lock = asyncio.Lock()
        self._fingerprint = b""
        self._suspect = True
        self._compared_at = float("-inf")
        self._cost = 0.0
        self._invalidated = 0
        self._was_unchanged = False
        """True if all was as last written when the last write began."""
        self._writes = 0
        """Incremented when a write is requested and when it starts, and by `wanted_changed`, which invalidates a comparison."""

    @asynccontextmanager
    async def writing(self, transactions: int, since: bytes | None = None) -> AsyncIterator[None]:
        """Write in the block, alone.

        `since` says that the kernel then holds exactly what it should, if nobody wrote since it had that fingerprint (when
        reading began). A block that raises leaves everything suspect; so does one under which the kernel's count of
        transactions moved by more than ours, for somebody else then wrote between our write and the reading of the count.
        """
        self._writes += 1
        async with self._lock:
            self._writes += 1
            before = self._read()
            known = not self._suspect and self._fingerprint == before
            self._suspect = True
            self._was_unchanged = known and bool(before)
            yield
            self._fingerprint = self._read()
            alone = _transactions_between(before, self._fingerprint) in (None, transactions)
            self._suspect = not (alone and (known or before == since))

    def nothing_written(self) -> bool:
        """Return whether a write that failed left all as it was, and all was as it should be; nothing is suspect then.

        The caller must no longer want what that write was to bring about. False if the fingerprint can miss a change.
        """
        nothing = self._period is None and self._was_unchanged and self._read() == self._fingerprint
        if nothing:
            self._suspect = False
        return nothing

    @property
    def unchanged(self) -> bool:
        """True if there is no sign of a difference between the kernel and the last write."""
        found = self._read()
        return bool(found) and found == self._fingerprint and not self._suspect

    @property
    def comparison_due(self) -> bool:
        """True if everything is to be compared now; the last comparison's cost may put it off."""
        elapsed = self._clock.monotonic() - self._compared_at
        period_over = self._period is not None and elapsed >= self._period
        if self.unchanged and not period_over:
            return False
        return elapsed >= min(self._cost * COST_RATIO, MAX_DELAY)

    @property
    def needs_lock(self) -> bool:
        """True if the next comparison must be made while nothing is written, for writes invalidated the last ones."""
        return self._invalidated >= MAX_INVALIDATED

    async def begin_comparison(self) -> Comparison:
        """Wait until no write is under way; call before reading."""
        async with self._lock:
            return Comparison(self._writes, self._read(), self._clock.monotonic())

    def wanted_changed(self) -> None:
        """Invalidate the running comparison: the desired state changes before its write is requested."""
        self._writes += 1

    def is_valid(self, comparison: Comparison) -> bool:
        """Return whether nothing was written since a comparison began."""
        return comparison.writes == self._writes

    def invalidated(self) -> None:
        """Count a comparison that a write invalidated."""
        self._invalidated += 1

    def finished(self, started: float) -> float:
        """Record the end of a comparison that started then, on the monotonic clock; return its seconds."""
        self._invalidated = 0
        self._compared_at = self._clock.monotonic()
        self._cost = self._compared_at - started
        return self._cost

    def found_equal(self, comparison: Comparison) -> None:
        """Record that nothing differed when the comparison began: later changes show in the fingerprint."""
        if self.is_valid(comparison):
            self._fingerprint, self._suspect = comparison.fingerprint, False


def _transactions_between(before: bytes, after: bytes) -> int | None:
    """Return how many transactions lie between two fingerprints that are counts (four bytes); None for others."""
    if len(before) != 4 or len(after) != 4:
        return None
    return (int.from_bytes(after, "big") - int.from_bytes(before, "big")) % (1 << 32)
