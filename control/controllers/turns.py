"""Gives the event loop back while much is looked at: the API server and all controllers share it.

What is compared with what is the user's choice, and upstream is served by threads. So whatever goes through objects, or
through the items of one, as often as a user chooses, counts its steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kube.selectors import LabelSelector

STEPS_A_TURN = 256
"""Steps between two suspensions. A step is what is done for one object or for one item of it: some 10 lines of Python, 2 µs."""
REQUEST_STEPS = 32
"""What a request counts that the server of this process answers."""


class Turn:
    """Counts the steps of one piece of work."""

    def __init__(self) -> None:
        self._steps = 0

    async def took(self, steps: int = 1) -> None:
        """Count steps; let others go on once they are enough."""
        self._steps += steps
        if self._steps >= STEPS_A_TURN:
            self._steps = 0
            await asyncio.sleep(0)


async def selects(selector: LabelSelector, labels: Mapping[str, str], turn: Turn) -> bool:
    """Say whether a selector selects labels: where both have many terms, in parts."""
    cost = selector.cost(labels)
    if cost <= STEPS_A_TURN:
        await turn.took(cost)
        return selector.matches(labels)
    for part in selector.parts(labels, STEPS_A_TURN):
        if not part:
            return False
        await turn.took(STEPS_A_TURN)
    return True
