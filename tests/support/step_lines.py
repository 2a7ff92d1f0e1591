"""Length of a coroutine's steps on the event loop, as the lines of Python that are executed from one wait to the next."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kube.steps import Step, stepwise
from tests.support.cost import Lines


async def longest_step(work: Coroutine[Any, Any, Any]) -> int:
    """Return the lines of the longest step of some work; those of other tasks and threads do not count."""
    longest = 0

    def run(step: Step, argument: Any) -> Any:
        nonlocal longest
        lines = Lines()
        try:
            with lines:
                return step(argument)
        finally:
            longest = max(longest, lines.count)

    await stepwise(work, run)
    return longest
