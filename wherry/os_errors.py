"""Errors of the operating system as sentences: the file, what is wrong with it, and what to do."""

from __future__ import annotations

import errno
import os

_FIXES = {
    errno.EACCES: "run it as root, or choose another path",
    errno.EPERM: "run it as root",
    errno.EROFS: "mount the file system writable, or choose another path",
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space in the quota",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EISDIR: "give a file, not a folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EEXIST: "move what is there, or choose another path",
}


def text(error: Exception) -> str:
    """Return any error as a sentence."""
    return sentence(error) if isinstance(error, OSError) else str(error)


def sentence(error: OSError) -> str:
    """Return an error as a sentence with the fix."""
    reason = (os.strerror(error.errno) if error.errno else str(error) or type(error).__name__).lower()
    files = [
        os.fspath(each) for each in (error.filename, error.filename2) if isinstance(each, str | bytes | os.PathLike)
    ]
    where = " and ".join(each.decode(errors="replace") if isinstance(each, bytes) else each for each in files)
    fix = _FIXES.get(error.errno or 0)
    return (f"{where}: {reason}" if where else reason) + (f": {fix}" if fix else "")
