"""Ports that a test may release and take again, or hand to another process, without anybody coming between.

A port that the kernel handed out (`bind` to 0) is in the range from which it serves every other socket of the machine, also
those of the tests beside this one: once it is free, the next connection may get it. These ports lie below that range, and
each test process has a block of them to itself, for as long as it lives, by a lock on a file.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

FIRST, BLOCK, BLOCKS = 20_000, 100, 90  # ends below the node ports, which begin at 30000
_LOCKS = Path(tempfile.gettempdir()) / "wherry-test-ports"


def reserve(count: int = 1) -> list[int]:
    """Return ports of 127.0.0.1 that nobody else is given while this process lives, and that nobody uses."""
    return list(itertools.islice(_free, count))


def _ports() -> Iterator[int]:
    first = FIRST + _block() * BLOCK
    for port in itertools.cycle(range(first, first + BLOCK)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # some program that is no test, or an earlier test's server that still runs
                continue
        yield port


def _block() -> int:
    """Take the first block that no living process has; its lock ends with the process."""
    _LOCKS.mkdir(exist_ok=True)
    for block in range(BLOCKS):
        lock = os.open(_LOCKS / str(block), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return block
    raise RuntimeError("all blocks of ports are taken")


_free = _ports()
