"""CPU time of a coroutine: of its own steps, from one wait to the next, not of what runs meanwhile."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from kube.steps import Step, stepwise

T = TypeVar("T")


class CPUTime:
    """Seconds of the thread's CPU time that the steps of some work took."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def run(self, step: Step, argument: Any) -> Any:
        """Return what a step returns, and add its time, also if it raises."""
        began = time.thread_time()
        try:
            return step(argument)
        finally:
            self.seconds += time.thread_time() - began


def measured(work: Coroutine[Any, Any, T], taken: CPUTime) -> Awaitable[T]:
    """Return what `work` returns, and add the time of its steps."""
    return stepwise(work, taken.run)
