"""Error for paths that contain a NUL, which the API accepts in `subPath`, `hostPath` and the items of volumes, as upstream.

The kernel has no such paths. Go's calls report EINVAL for them, Python's raise ValueError. With `as_os_error`, code that
handles OSError of files handles these paths too, and the pod gets an event.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

_TEXTS = ("embedded null byte", "embedded null character")


@contextlib.contextmanager
def as_os_error() -> Iterator[None]:
    """Raise OSError (EINVAL) in place of the ValueError for a path that contains a NUL; usable as a decorator."""
    try:
        yield
    except ValueError as error:
        if str(error) not in _TEXTS:
            raise
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from error
