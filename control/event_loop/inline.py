"""Limit on the cost of work on the event loop. Work that exceeds it is repeated in a thread.

The cost of an expression is known only when it is evaluated: upstream's limits allow one policy, or the rules of one object,
ten million units, which take seconds. A unit is mostly between 50 and 500 ns, and at most 5 µs, which
tests/unit/cost/test_cel_charges.py measures for every function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
MOST = 5000
"""Units of cost on the event loop at once: about 2 ms."""


class TooMuchHere(Exception):
    """Work has cost more than it may here. It has changed nothing and is to be done elsewhere, from the start."""


class _Here(threading.local):
    left: int | None = None


_here = _Here()


def limited(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns; raises TooMuchHere if its expressions together cost more than MOST.

    Work inside of other limited work spends what that has left.
    """
    if _here.left is not None:
        return work(*args, **kwargs)
    _here.left = MOST
    try:
        return work(*args, **kwargs)
    finally:
        _here.left = None


class Allowance:
    """Limit on the total cost of several pieces of work on the event loop."""

    def __init__(self) -> None:
        self._left = MOST

    def limit(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; raises TooMuchHere if it costs more than is left."""
        outside = _here.left
        _here.left = self._left
        try:
            return work()
        finally:
            self._left, _here.left = _here.left, outside


def left() -> int | None:
    """Return what may still be spent here, None if there is no limit."""
    return _here.left


def spent(cost: int) -> None:
    """Take a cost off what is left; raises TooMuchHere if that was less."""
    if _here.left is not None:
        if cost > _here.left:
            raise TooMuchHere
        _here.left -= cost
