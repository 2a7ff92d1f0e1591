"""Limits the CPU time that is used to make the statuses of a namespace's pods while more of them will follow.

The status of a pod of thousands of containers takes a twentieth of a second, and to write it several times as much. While such
a pod starts, it changes all the time: without a limit its statuses would take most of the event loop's time.
"""

from __future__ import annotations

from kube.clock import Clock
from kube.rate import Rate

BURST, SHARE = 2.0, 0.05
"""Seconds of CPU time before statuses are delayed, and part of all time that they may take then."""
LONGEST = 30.0
"""The longest delay in seconds."""


class StatusRate:
    """The time that was used, by namespace."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._rate = clock, Rate(BURST, SHARE, LONGEST)

    def charge(self, namespace: str, seconds: float) -> None:
        """Note the CPU time that a status took."""
        self._rate.charge(namespace, seconds, self._clock.monotonic())

    def delay(self, namespace: str) -> float:
        """Return the seconds for which a status that another one will follow is to wait."""
        return self._rate.delay(namespace, self._clock.monotonic())
