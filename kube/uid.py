"""Random UUIDs, for objects and requests.

Random bytes are read from the kernel a few kilobytes at a time: one call a UUID would cost more than the rest.
"""

from __future__ import annotations

import os

_POOL_SIZE = 4096
_pool = b""
_at = 0


def new_uid() -> str:
    """Return a random (version 4) UUID as text."""
    global _pool, _at
    if _at + 16 > len(_pool):
        _pool, _at = os.urandom(_POOL_SIZE), 0
    text = _pool[_at : _at + 16].hex()
    _at += 16
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
