"""Writes a pod's /etc/hosts, of which its containers have one file mounted.

It is written in place. A file that replaced it would leave the old one mounted in containers that run: they could write
into it without a limit, and nothing that measures the pod's directory would find it (CVE-2020-8557). A container may have the
file open while another one starts, so nothing is written that is there already, and readers find either text: the new one
is written at once over the old one, which is shortened only then.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_PADDED = 64 << 10
"""Bytes of a file up to which what is left of its old text is overwritten before the file is shortened."""


def write(path: Path, text: bytes, mode: int) -> None:
    """Have a regular file with this text and mode; no link is followed. Raise OSError.

    Nothing is opened for writing where it is there: the disk may be read-only by now.
    """
    if _holds(path, text, mode):
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        os.fchmod(descriptor, mode)
        if found.st_size == len(text) and os.pread(descriptor, len(text), 0) == text:
            return
        size = found.st_size
        if size > max(_PADDED, len(text)):  # a container has written it
            os.ftruncate(descriptor, size := len(text))
        _write(descriptor, text.ljust(size, b"\n"))
        os.ftruncate(descriptor, len(text))
    finally:
        os.close(descriptor)


def _holds(path: Path, text: bytes, mode: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != mode or found.st_size != len(text):
            return False
        return os.pread(descriptor, len(text), 0) == text
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], written)
