"""Limits on the number of comparisons in one attempt to schedule a pod, for products of two lists, and time slices for them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

SLICE_SECONDS = 0.005
now = time.monotonic


class OutOfSteps(Exception):
    """The attempt compares too much."""


class Steps:
    """Counts down; a step is a comparison of a few microseconds."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, number: int = 1) -> None:
        """Use up steps; raises OutOfSteps if none are left."""
        self.left -= number
        if self.left < 0:
            raise OutOfSteps

    def pause(self) -> None:
        """Called where the attempt may continue later: nothing that was done is lost."""


class Paused(Exception):
    """The slice has ended."""


class SlicedSteps(Steps):
    """The steps of an attempt, in slices of time."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.start()

    def start(self) -> None:
        """Start a slice."""
        self._end = now() + SLICE_SECONDS

    @contextlib.contextmanager
    def resumption(self) -> Iterator[None]:
        """Extend the slice by the time that it takes to resume, so that this is not most of its work."""
        since = now()
        yield
        resumed = now()
        self._end = max(self._end, resumed + (resumed - since))

    @property
    def over(self) -> bool:
        """True once the slice has ended."""
        return now() >= self._end

    def pause(self) -> None:
        """Raise Paused if the slice has ended."""
        if self.over:
            raise Paused
