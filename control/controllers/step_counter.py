"""Counter of steps that yields to the event loop between many: the API server and all controllers share the loop.

What is compared with what is the user's choice, and upstream is served by threads. So whatever goes through objects, or
through the items of one, as often as a user chooses, counts its steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kube.selectors import LabelSelector

STEPS_PER_ITERATION = 256
"""Steps between two suspensions. A step is what is done for one object or for one item of it: some 10 lines of Python, 2 µs."""
ENTRIES_PER_STEP = 16
"""Entries of a map or list that are copied or compared by one call of C code in the time of a step."""
REQUEST_STEPS = 32
"""Steps that a request to the API server of this process counts for."""


class StepCounter:
    """Counts the steps of one piece of work."""

    def __init__(self) -> None:
        self._steps = 0

    async def count(self, steps: int = 1) -> None:
        """Count steps; yield to the event loop once they are enough."""
        self._steps += steps
        if self._steps >= STEPS_PER_ITERATION:
            self._steps = 0
            await asyncio.sleep(0)


async def selects(selector: LabelSelector, labels: Mapping[str, str], counter: StepCounter) -> bool:
    """Return whether a selector selects labels: where both have many terms, in parts."""
    cost = selector.cost(labels)
    if cost <= STEPS_PER_ITERATION:
        await counter.count(cost)
        return selector.matches(labels)
    for part in selector.parts(labels, STEPS_PER_ITERATION):
        if not part:
            return False
        await counter.count(STEPS_PER_ITERATION)
    return True
