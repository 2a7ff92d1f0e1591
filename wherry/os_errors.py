"""Errors of the operating system as sentences: the file, what is wrong with it, and what to do."""

from __future__ import annotations

import errno
import os

from kube.error_words import words

_FIXES = {
    errno.EACCES: "run it as root, or choose another path",
    errno.EPERM: "run it as root",
    errno.EROFS: "mount the file system writable, or choose another path",
    errno.ENOSPC: "the disk is full, free space on it",
    errno.EDQUOT: "free space in the quota",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EISDIR: "name a file, or remove the folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EEXIST: "move what is there, or choose another path",
}


_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors that programs and libraries report for a full or read-only disk in a text of their own."""
_SQLITE = {
    13: _FIXES[errno.ENOSPC],  # SQLITE_FULL
    8: _FIXES[errno.EROFS],  # SQLITE_READONLY
    10: "free space on the disk, or replace it",  # SQLITE_IOERR
}


def text(error: Exception) -> str:
    """Return any error as a sentence."""
    if isinstance(error, OSError):
        return sentence(error)
    # The primary code of those that say more; the module sqlite3 is not imported by each command.
    fix = _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return f"{error}: {fix}" if fix else str(error)


def sentence(error: OSError) -> str:
    """Return an error as a sentence with the file and the fix."""
    files = [
        os.fspath(each) for each in (error.filename, error.filename2) if isinstance(each, str | bytes | os.PathLike)
    ]
    where = " and ".join(each.decode(errors="replace") if isinstance(each, bytes) else each for each in files)
    return f"{where}: {reason(error)}" if where else reason(error)


def reason(error: OSError) -> str:
    """Return an error with the fix, without the file."""
    if error.errno == errno.EFBIG and error.strerror:  # Wherry's own limits, in a sentence that has the limit
        return error.strerror
    found = (os.strerror(error.errno) if error.errno else words(error)).lower()
    fix = _FIXES.get(error.errno or 0)
    return f"{found}: {fix}" if fix else found


def with_fix(message: str) -> str:
    """Return a message with the fix, if it is another program's about a full or read-only disk."""
    lower = message.lower()
    for number in _OF_DISKS:
        if os.strerror(number).lower() in lower and _FIXES[number] not in message:
            return f"{message.rstrip()}: {_FIXES[number]}"
    return message
