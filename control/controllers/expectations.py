"""Expectations: creations and deletions that a controller has requested and not yet seen in its cache.

After creating three pods a controller's cache may for a moment still show none; counting again then would create three
more. So each key has the number of creations and the deletions that are under way, the informer's events settle them, and a
key is not reconciled while some are open. One that stays open for five minutes is given up (a missed event must not stop
a controller for ever).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kube.clock import Clock
from kube.step_limit import StepTooLong

EXPIRY_SECONDS = 300.0


@dataclass(slots=True)
class _Open:
    since: float
    creations: int = 0
    deletions: set[str] = field(default_factory=set)


class Expectations:
    """Open creations (a count) and deletions (pod UIDs) of each controller key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, _Open] = {}

    def satisfied(self, key: str) -> bool:
        """True if nothing is open for the key, or it has been open for too long."""
        found = self._open.get(key)
        if found is None:
            return True
        if found.creations <= 0 and not found.deletions:
            return True
        return self._clock.monotonic() - found.since > EXPIRY_SECONDS

    def expect(self, key: str, creations: int = 0, deletions: Iterable[str] = ()) -> None:
        """Open what is about to be requested, in place of what was open."""
        self._open[key] = _Open(self._clock.monotonic(), creations, set(deletions))

    @contextlib.contextmanager
    def requesting(self, key: str, creations: int = 0, deletions: Iterable[str] = ()) -> Iterator[None]:
        """Open what the body requests, as `expect`.

        If a step of the body is stopped, nothing stays open: requests that were not sent are never observed, and the key's
        next turn comes after a pause in which those that were sent are.
        """
        self.expect(key, creations, deletions)
        try:
            yield
        except StepTooLong:
            self.forget(key)
            raise

    def creation_observed(self, key: str, count: int = 1) -> None:
        if found := self._open.get(key):
            found.creations -= count

    def deletion_observed(self, key: str, uid: str) -> None:
        if found := self._open.get(key):
            found.deletions.discard(uid)

    def forget(self, key: str) -> None:
        self._open.pop(key, None)
