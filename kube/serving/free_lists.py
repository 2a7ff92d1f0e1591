"""Empties CPython's free lists of tuples, whose entries keep pages in use after a load.

CPython keeps up to 2000 freed tuples of each length below 20 for later use, and frees them only in a full garbage collection,
which takes a tenth of a second. After a load they are those that were freed last, on about as many pages.

A tuple that is shorter than its iterable announced is reallocated at its real size. So tuples are taken from the list of each
length and shortened to one item; the list of that length is full then, and frees the others. Its own entries are replaced by
new ones, which malloc places in pages that are in use.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube.collecting import uncollected

LENGTHS = range(2, 20)
KEPT = 2000
"""PyTuple_MAXFREELIST."""
_ITEM = (None,)


class _Overlong:
    """Iterable of one item whose announced length is greater."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[None]:
        return iter(_ITEM)


def release_tuples() -> None:
    """Free the tuples in all lists; takes about 10 ms, and may be called in a thread."""
    with uncollected():
        for length in LENGTHS:
            _allocate(length)
        listed = _allocate(1)
        added = _allocate(1)
        del added  # the list takes these, and is full for the others
        del listed


def _allocate(length: int) -> list[tuple[None, ...]]:
    """Return as many tuples as a list has, taken from the list of a length and shortened to one item."""
    announced = _Overlong(length)
    return [tuple(announced) for _ in range(KEPT)]
