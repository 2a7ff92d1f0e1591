"""Cache of converted routes and Ingresses, each converted in steps that are limited by its namespace.

An object whose conversion is stopped (kube/step_limit.py) gets a result of its own, and the others of the computation are
served. Those of its namespace are not converted for a while, so that repeated changes hold the event loop no more often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from kube.gateway.steps import PAUSE, SHARES, completed
from kube.step_limit import Limit, StepTooLong, limited

log = logging.getLogger(__name__)
T = TypeVar("T")


class _Entry(Generic[T]):
    """A converted object, or one that is being converted; dropped when it changes."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: T | None = None


class Conversions(Generic[T]):
    """Converted objects by key; `stopped` is the result for those that take too long.

    `again` is called with the key of an object that was not converted because of others of its namespace.
    """

    def __init__(self, stopped: T, again: Callable[[str], None]) -> None:
        self._stopped, self._again = stopped, again
        self._entries: dict[str, _Entry[T]] = {}
        self._paused: dict[str, float] = {}
        """Namespaces of which a conversion was stopped, and the times at which they may have some again."""

    def __len__(self) -> int:
        return len(self._entries)

    def forget(self, key: str) -> None:
        """Convert an object again: it, or what it refers to, has changed."""
        self._entries.pop(key, None)

    def converted(self, key: str) -> T | None:
        """Return an object if it is converted already."""
        entry = self._entries.get(key)
        return entry.value if entry is not None else None

    async def get(self, key: str, steps: Callable[[], Generator[int, None, T]]) -> T:
        """Return the converted object. `steps` is called before anything is awaited, so that a later change is noticed."""
        entry = self._entries.get(key)
        if entry is not None and entry.value is not None:
            return entry.value
        namespace = key.partition("/")[0]
        if (left := self._left(namespace)) > 0:
            asyncio.get_running_loop().call_later(left, self._again, key)
            return self._stopped
        if entry is None:
            entry = self._entries[key] = _Entry()
        try:
            entry.value = await limited(completed(steps()), Limit(SHARES, namespace))
        except StepTooLong as error:
            log.error("gateway: %s: %s; it is not served until it changes", key, error)
            entry.value = self._stopped
            self._paused[namespace] = time.monotonic() + PAUSE
        return entry.value

    def _left(self, namespace: str) -> float:
        left = self._paused.get(namespace, 0.0) - time.monotonic()
        if left <= 0:
            self._paused.pop(namespace, None)
        return left
