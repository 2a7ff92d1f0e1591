"""Jobs in slices: generators that yield so that others run in the event loop meanwhile. No I/O."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

R = TypeVar("R")


def run_to_end(job: Generator[None, None, R]) -> R:
    """Run a job to its end without suspending, and return its result."""
    while True:
        try:
            next(job)
        except StopIteration as stop:
            return cast(R, stop.value)
