"""Choosing among many objects by a selector of many terms, with other work of the event loop in between.

A selector of 64 KB and an object of 600 KB have thousands of keys in common: to compare the two takes milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from control.storage.entry import Entry, Predicate

SLICE_SECONDS = 0.001
"""How long the event loop is held up at once, but for one object."""


async def chosen(entries: Sequence[Entry], predicate: Predicate) -> list[Entry]:
    """Return the entries that match."""
    found, began = [], time.perf_counter()
    for entry in entries:
        if predicate(entry):
            found.append(entry)
        if time.perf_counter() - began > SLICE_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return found
