"""Keeping the garbage collector away while one call makes very many objects, none of which is garbage.

A collection is begun after so many new objects, also in the middle of a call in C, and goes through all that are young: half of
as long as the conversion of a large object, during which no other thread runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Begin no collection meanwhile. With several threads the first that leaves ends it: collections never stay turned off."""
    if not gc.isenabled():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
