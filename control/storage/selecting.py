"""Choosing among many objects by a selector, with other work of the event loop in between.

A selector of 64 KB and an object of 600 KB have thousands of keys in common: to compare the two takes milliseconds. So does to
find the labels of a few hundred objects that nobody has asked for theirs before.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.pacing import Pace
from control.storage.entry import Entry, Predicate

TOGETHER, SMALL = 64, 128 << 10
"""Objects that are compared without a look at the time, and their bytes at most: it takes as long as to compare a large one."""


async def chosen(
    entries: Sequence[Entry], predicate: Predicate, costly: bool, most: int = 0
) -> tuple[list[Entry], int]:
    """Return the entries that match, at most `most` if not 0, and the index of the next one that does (0: there is none).

    A `costly` predicate takes milliseconds for one entry.
    """
    found = list[Entry]()
    pace = Pace()
    for start in range(0, len(entries), TOGETHER):
        some = entries[start : start + TOGETHER]
        await pace.step()
        if costly or sum([len(entry.data) for entry in some]) > SMALL:
            for entry in some:
                unread = entry.unread
                if (unread or costly) and pace.over(unread):
                    await pace.turn(unread)
                if predicate(entry):
                    found.append(entry)
        else:
            found += [entry for entry in some if predicate(entry)]
        if most and len(found) > most:
            return found[:most], entries.index(found[most], start)
    return found, 0
