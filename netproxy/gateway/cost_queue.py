"""Fair queue of steps by their cost: a limit for each iteration of the event loop, round robin over owners.

What a step costs is known only when it is done. An owner whose step cost more than its turn allows misses its next turns
(deficit round robin), so owners with cheap steps get as much done as those with expensive ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)
Step = Callable[[], int]
"""Does a part of the work and returns its cost."""
MOST, QUANTUM = 512, 64
"""Cost of one iteration, and of one owner's turn; a cost of 512 is 1.5 ms."""


class _Owner:
    """Steps of an owner, and what it may spend in its turn."""

    __slots__ = ("credit", "steps")

    def __init__(self) -> None:
        self.steps: deque[Step] = deque()
        self.credit = 0


class CostQueue:
    """The queue of all owners."""

    def __init__(self) -> None:
        self._left = MOST
        self._counting = False
        self._owners: dict[str, _Owner] = {}

    def run(self, owner: str, step: Step) -> None:
        """Run a step at once, or in a later iteration if this one has had enough or others wait."""
        if self._left > 0 and not self._owners:
            self._count()
            self._left -= step()
        else:
            self.add(owner, step)

    def add(self, owner: str, step: Step) -> None:
        """Run a step when it is the owner's turn."""
        self._owners.setdefault(owner, _Owner()).steps.append(step)
        self._count()

    def _count(self) -> None:
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._left, self._counting = MOST, False
        while self._left > 0 and self._owners:
            name = next(iter(self._owners))
            owner = self._owners[name]
            owner.credit = min(owner.credit, 0) + QUANTUM
            while owner.steps and owner.credit > 0 and self._left > 0:
                cost = _run(owner.steps.popleft())
                owner.credit -= cost
                self._left -= cost
            del self._owners[name]
            if owner.steps:
                self._owners[name] = owner  # behind everybody else
        if self._owners:
            self._count()


def _run(step: Step) -> int:
    try:
        return step()
    except Exception:
        log.exception("step of a response")
        return 1
