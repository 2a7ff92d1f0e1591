"""When must everything that a backend wrote be compared with what the kernel holds?

A delta is applied blind, against the shadow. Whether others changed anything is asked every few seconds with the writer's
fingerprint, which lists no rule; where a fingerprint can miss a change (legacy iptables), everything is also compared each
period. A comparison may take a twentieth of the time that passes, as long as it need not wait too long for that. Reading for
one takes long with thousands of Services and holds nothing up: it counts only if nothing was written meanwhile, and it begins
when no write is under way; where writes never cease (`starving`), the next one keeps them waiting. (What is being written is in
the shadow already and not yet in the kernel: a repair would write it twice.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kube.clock import Clock

COST_SHARE = 20
LONGEST = 20.0
"""Seconds that a comparison is put off at most, however long it takes: what others did is repaired within 30 s."""
PATIENCE = 2
"""Comparisons in a row that may be void before one must be made while nothing is written."""


class DriftWatch:
    """Knows whether what the kernel holds is still what was last written. Every write goes through `writing`."""

    def __init__(self, fingerprint: Callable[[], bytes], clock: Clock, period: float | None = None) -> None:
        self._read, self._clock, self._period = fingerprint, clock, period
        self._lock = asyncio.Lock()
        self._fingerprint = b""
        self._suspect = True
        self._compared_at = float("-inf")
        self._cost = 0.0
        self._void = 0
        self._unmoved = False
        self.writes = 0
        """Moves when a write is asked for and when it begins; a comparison is void if this moved under it."""

    @asynccontextmanager
    async def writing(self, transactions: int, since: bytes | None = None) -> AsyncIterator[None]:
        """Write in the block, alone.

        `since` says that the kernel then holds exactly what it should, if nobody wrote since it had that fingerprint (when
        reading began). A block that raises leaves everything suspect; so does one under which the kernel's count of
        transactions moved by more than ours, for somebody else then wrote between ours and the look at the count.
        """
        self.writes += 1  # one that waits for its turn makes a comparison void as well
        async with self._lock:
            self.writes += 1
            before = self._read()
            known = not self._suspect and self._fingerprint == before
            self._suspect = True
            self._unmoved = known and bool(before)
            yield
            self._fingerprint = self._read()
            alone = _moved(before, self._fingerprint) in (None, transactions)
            self._suspect = not (alone and (known or before == since))

    def took_nothing(self) -> bool:
        """Return whether a write that failed left all as it was, and all was as it should be.

        What it was to bring about must then be wanted no longer: to the backend nothing is suspect.
        """
        unmoved = self._unmoved and self._read() == self._fingerprint
        if unmoved:
            self._suspect = False
        return unmoved

    @property
    def clean(self) -> bool:
        """Whether nothing says that the kernel holds anything else than what was last written."""
        found = self._read()
        return bool(found) and found == self._fingerprint and not self._suspect

    @property
    def due(self) -> bool:
        """Whether everything is to be compared now; what is not clean may have to wait for its turn."""
        now = self._clock.monotonic()
        over = self._period is not None and now - self._compared_at >= self._period
        if self.clean and not over:
            return False
        return now - self._compared_at >= min(self._cost * COST_SHARE, LONGEST)

    @property
    def starving(self) -> bool:
        """Whether comparisons come to nothing because something is written during each."""
        return self._void >= PATIENCE

    def void(self) -> None:
        """Note that a comparison came to nothing."""
        self._void += 1

    async def began(self) -> tuple[int, bytes, float]:
        """Wait until no write is under way and return what `found_whole` needs; call before reading."""
        async with self._lock:
            return self.writes, self._read(), self._clock.monotonic()

    def took(self, began: float) -> float:
        """Note the end of a comparison that began then, on the monotonic clock; return its seconds."""
        self._void = 0
        self._compared_at = self._clock.monotonic()
        self._cost = self._compared_at - began
        return self._cost

    def found_whole(self, began: tuple[int, bytes, float]) -> None:
        """Note that nothing differed, as of the moment the comparison began: later changes show at the next look."""
        if began[0] == self.writes:
            self._fingerprint, self._suspect = began[1], False


def _moved(before: bytes, after: bytes) -> int | None:
    """Return how many transactions lie between two fingerprints that are counts (four bytes); None for others."""
    if len(before) != 4 or len(after) != 4:
        return None
    return (int.from_bytes(after, "big") - int.from_bytes(before, "big")) % (1 << 32)
