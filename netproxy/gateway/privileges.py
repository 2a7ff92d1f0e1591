"""Drops the privileges of the process, to which anybody who reaches the node may send requests.

It needs none of them: its ports are above 1024, and the files that it reads belong to its user. Capabilities belong to threads,
so this is called before others are started.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os

log = logging.getLogger(__name__)
_NO_NEW_PRIVILEGES, _DROP_BOUNDING, _AMBIENT, _CLEAR_ALL = 38, 24, 47, 4
"""PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL (prctl(2))."""
_VERSION_3 = 0x20080522
_LAST = 63


class _Header(ctypes.Structure):
    """struct __user_cap_header_struct (capset(2))."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop() -> None:
    """Give up all capabilities, and those that programs with privileges would give; log what the kernel refuses."""
    library = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):
        for capability in range(_LAST + 1):
            library.prctl(_DROP_BOUNDING, capability, 0, 0, 0)  # those that there are not are refused
        library.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
        none = (ctypes.c_uint32 * 6)()
        header = _Header(_VERSION_3, 0)
        refused = library.capset(ctypes.byref(header), none) or library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if refused:
            log.warning("privileges are not dropped: %s", os.strerror(ctypes.get_errno()))
