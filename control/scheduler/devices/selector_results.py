"""Cached results of device selectors, by a number for each selector.

A result is whether the selector matches, or a text that says why it cannot be evaluated. The devices share equal texts.

Selectors are numbered by a digest, since their texts may have 10 KB. All tables are emptied when they are full; numbers are
not used again.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
import weakref
from typing import ClassVar

MOST_SELECTORS, MOST_PER_DEVICE, MOST_OF_ALL, LONGEST_ERROR = 1024, 256, 1 << 18, 1024
"""Numbered selectors, results of one device and of all, and characters of an error."""
SelectorResult = bool | str
_numbers: dict[bytes, int] = {}
_next = itertools.count()


def digest_of(expression: str) -> bytes:
    """Return the digest that stands for a selector."""
    return hashlib.sha256(expression.encode()).digest()


def _number(digest: bytes) -> int:
    found = _numbers.get(digest)
    if found is None:
        if len(_numbers) >= MOST_SELECTORS:
            _numbers.clear()
        found = _numbers[digest] = next(_next)
    return found


@functools.lru_cache(1024)
def _shared(text: str) -> str:
    """Return the same object for equal texts. They quote selectors of users, so those not used lately are not kept."""
    return text


class SelectorResults:
    """Cached results of one device."""

    __slots__ = ("__weakref__", "_known")

    _all: ClassVar[weakref.WeakSet[SelectorResults]] = weakref.WeakSet()
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _cached: ClassVar[int] = 0
    """Results of all devices, including devices deleted since the tables were last emptied."""

    def __init__(self) -> None:
        self._known: dict[int, SelectorResult] = {}
        with self._lock:
            self._all.add(self)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, selector: bytes) -> SelectorResult | None:
        """Return the result of a selector with this digest, None if that is not known."""
        return self._known.get(_number(selector))

    def put(self, selector: bytes, result: SelectorResult) -> SelectorResult:
        """Cache a selector's result, and return it; a long text is cut."""
        if isinstance(result, str):
            result = _shared(result[:LONGEST_ERROR])
        if len(self._known) >= MOST_PER_DEVICE:
            self._known.clear()
        with self._lock:
            if SelectorResults._cached >= MOST_OF_ALL:
                for each in self._all:
                    each._known.clear()
                SelectorResults._cached = 0
            SelectorResults._cached += 1
        self._known[_number(selector)] = result
        return result
