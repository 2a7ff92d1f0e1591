"""Limits garbage collections: delays them where very many objects are created, and keeps those of all objects short.

Python starts a collection after a number of new objects, also within a call in C, and traverses all young objects: that takes
half of the time of the conversion of a large object, and no other thread runs meanwhile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
FULL_SECONDS = 0.05
"""CPU time of a full collection above which the next one must not traverse the same objects again."""


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
def short_full_collections() -> Iterator[None]:
    """Freeze meanwhile what a full collection has left if it took longer than FULL_SECONDS.

    A full collection is one step of the event loop whose length is that of everything in memory, and users decide how much
    they store: two gigabytes took three seconds. This is for a process whose objects are trees, which go by reference count,
    frozen or not: what is in a cycle and becomes garbage after it was frozen remains in memory. The API server is one; a
    node's daemons are not (kube/serving/garbage.py).
    """
    began = 0.0

    def freeze(phase: str, info: dict[str, Any]) -> None:
        nonlocal began
        if info["generation"] < 2:
            return
        if phase == "start":
            began = time.thread_time()
        elif time.thread_time() - began > FULL_SECONDS:
            gc.freeze()

    gc.callbacks.append(freeze)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze)


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
