"""CPU time of a coroutine: of its own steps, from one wait to the next, not of what runs meanwhile.

Steps that become runnable together are spread over iterations of the event loop (fair_steps.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from kube.fair_steps import FairSteps
from kube.steps import Step, stepwise

T = TypeVar("T")


class CPUTime:
    """Seconds of the thread's CPU time that the steps of some work of an owner took."""

    __slots__ = ("_fair", "_owner", "seconds")

    def __init__(self, fair: FairSteps, owner: str) -> None:
        self._fair, self._owner = fair, owner
        self.seconds = 0.0

    def wait(self) -> asyncio.Future[None] | None:
        """Return what the next step waits for; None if it may run now."""
        return self._fair.wait(self._owner)

    def run(self, step: Step, argument: Any) -> Any:
        """Return what a step returns, and add its time, also if it raises."""
        began = time.thread_time()
        try:
            return step(argument)
        finally:
            seconds = time.thread_time() - began
            self.seconds += seconds
            self._fair.count(seconds)


def measured(work: Coroutine[Any, Any, T], taken: CPUTime) -> Awaitable[T]:
    """Return what `work` returns, and add the time of its steps."""
    return stepwise(work, taken.run, taken.wait)
