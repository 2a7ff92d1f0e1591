"""Selection among many objects by a selector, which yields to the event loop.

A selector of 64 KB and an object of 600 KB have thousands of keys in common: comparing the two takes milliseconds. So does
decoding the labels of a few hundred objects for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.event_loop.pacing import TimeSlice
from control.storage.entry import Entry, Predicate

BATCH, BATCH_BYTES = 64, 128 << 10
"""Maximum number and bytes of objects that are compared before the next check of the time slice."""


async def select_entries(
    entries: Sequence[Entry], predicate: Predicate, *, costly: bool, most: int = 0
) -> tuple[list[Entry], int]:
    """Return the entries that match, at most `most` if not 0, and the index of the next one that does (0: there is none).

    A `costly` predicate takes milliseconds for one entry.
    """
    found = list[Entry]()
    time_slice = TimeSlice()
    for start in range(0, len(entries), BATCH):
        some = entries[start : start + BATCH]
        await time_slice.step()
        if costly or sum([len(entry.data) for entry in some]) > BATCH_BYTES:
            for entry in some:
                unread = entry.unread
                if (unread or costly) and time_slice.over(unread):
                    await time_slice.turn(unread)
                if predicate(entry):
                    found.append(entry)
        else:
            found += [entry for entry in some if predicate(entry)]
        if most and len(found) > most:
            return found[:most], entries.index(found[most], start)
    return found, 0
