"""Shrinks dictionaries after most of their entries have been deleted.

Python keeps a dictionary's table at its maximum size until the next insertion resizes it: 2 MB after 30 000 deletions.
"""

from __future__ import annotations

import sys
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

SMALL = 32 << 10
"""Size below which a dictionary is not copied."""
ENTRY = 400
"""Bytes for each entry above which a dictionary is copied; right after it has grown there are about a hundred."""


def shrunk(found: dict[K, V]) -> dict[K, V]:
    """Return a dictionary, or a smaller copy if most of its slots are empty; to be called after each deletion."""
    return dict(found) if sys.getsizeof(found) > max(SMALL, ENTRY * len(found)) else found
