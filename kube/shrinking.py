"""Dictionaries that need less room again when most of their entries have gone.

Python keeps the room of the most entries that one ever had until others are put in: 2 MB of 30 000 deleted objects.
"""

from __future__ import annotations

import sys
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

SMALL = 32 << 10
"""Bytes that are not worth the time."""
ENTRY = 400
"""Bytes for each entry from which on there is too much room; right after growing there are about a hundred."""


def shrunk(found: dict[K, V]) -> dict[K, V]:
    """Return a dictionary as it is, or a copy where most of its room is empty; to be asked after each deletion."""
    return dict(found) if sys.getsizeof(found) > max(SMALL, ENTRY * len(found)) else found
