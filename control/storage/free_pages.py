"""Returns the blocks of the database's unused pages to the file system.

SQLite reuses pages that deletions have freed, but its file never becomes smaller, which does not help on a full disk. The
list of unused pages (sqlite.org/fileformat2.html, "The Freelist") is a chain of trunk pages, each with the numbers of some
hundreds of leaf pages, whose contents SQLite does not read. The blocks of the leaf pages are punched out of the file.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

from control.storage import recovery
from control.storage.database_file import DatabaseFile

_HEADER = 100
_PAGE_COUNT_OFFSET, _FREELIST_OFFSET = 28, 32
"""Offsets in the header: number of pages; first trunk page of the freelist, followed by the length of the list."""


class FreelistDamaged(Exception):
    """The list of unused pages is inconsistent."""


def free_unused_pages(connection: sqlite3.Connection, file: DatabaseFile, path: Path) -> bool:
    """Free the blocks of unused pages; return False if the log cannot be truncated now.

    Raises FreelistDamaged, sqlite3.Error, OSError.
    """
    if not recovery.truncate_log(connection):
        return False
    connection.execute("BEGIN IMMEDIATE")  # no other program may use such a page meanwhile
    try:
        if path.with_name(path.name + "-wal").stat().st_size > 0:
            return False
        for offset, length in _runs(*_unused(file)):
            file.free(offset, length)
    finally:
        connection.execute("ROLLBACK")
    return True


def _unused(file: DatabaseFile) -> tuple[int, list[int]]:
    """Return the size of a page, and the unused pages that may be freed, in ascending order; the first page is 1."""
    header = file.read(0, _HEADER)
    (size,) = struct.unpack_from(">H", header, 16)
    size = 65536 if size == 1 else size
    (last,) = struct.unpack_from(">I", header, _PAGE_COUNT_OFFSET)
    following, length = struct.unpack_from(">II", header, _FREELIST_OFFSET)
    found: list[int] = []
    visited = 0
    while following:
        page = file.read((following - 1) * size, size)
        following, number = struct.unpack_from(">II", page)
        visited += 1 + number
        if number > size // 4 - 2 or visited > length:
            raise FreelistDamaged("the list of unused pages is damaged")
        found += struct.unpack_from(f">{number}I", page, 8)
    if found and not (min(found) > 1 and max(found) <= last):
        raise FreelistDamaged("the list of unused pages is damaged")
    return size, sorted(found)


def _runs(size: int, pages: list[int]) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each run of successive pages: blocks may be larger than pages."""
    start = 0
    for at in range(1, len(pages) + 1):
        if at == len(pages) or pages[at] != pages[at - 1] + 1:
            yield (pages[start] - 1) * size, (at - start) * size
            start = at
