"""Delays the garbage collector where very many objects are created, none of which is garbage.

Python starts a collection after a number of new objects, also within a call in C, and traverses all young objects: that takes
half of the time of the conversion of a large object, and no other thread runs meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncollected_call(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, without a collection meanwhile: as `uncollected`, with fewer calls for small objects."""
    if not gc.isenabled():
        return work(*args, **kwargs)
    try:
        gc.disable()
        return work(*args, **kwargs)
    finally:
        gc.enable()


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


def count_as_old() -> None:
    """Move all objects to the oldest generation without traversing them: the next collections of young ones are short.

    For the moment after the import of many modules. Objects that the process has frozen stay frozen: then nothing is moved.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


@contextmanager
def seldom_collected(*thresholds: int) -> Iterator[None]:
    """Use these thresholds meanwhile, unless the process has higher ones or does not collect."""
    before = gc.get_threshold()
    if not 0 < before[0] < thresholds[0]:
        yield
        return
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)
