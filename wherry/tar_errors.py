"""Errors of tarfile for an archive that somebody else made: it has others than its own for numbers, sizes and nesting."""

from __future__ import annotations

import lzma
import tarfile
import zlib

TAR_ERRORS = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError, MemoryError)
"""ValueError for sparse maps and names, OverflowError and MemoryError for sizes, RecursionError for chains of headers."""
DECOMPRESSION_ERRORS = (zlib.error, lzma.LZMAError)
"""Errors of compressed data that tarfile and zipfile pass on; bzip2 has OSError."""


def reason(error: BaseException) -> str:
    """Return what is wrong with the archive."""
    if isinstance(error, RecursionError):
        return "too many extended headers follow each other"
    if isinstance(error, (MemoryError, OverflowError)):
        return "a header has a size that cannot be"
    return str(error)
