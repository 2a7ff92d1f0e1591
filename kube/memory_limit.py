"""Memory limit of a process that a daemon starts for work whose size others decide.

It is also the first process that the kernel ends if the machine's memory is short.
"""

from __future__ import annotations

import resource
from pathlib import Path

OOM_SCORE = 500
"""The kernel ends such a process before its daemon, whose score (-900 by its unit) it would inherit."""


def limit(kind: int, size: int, score_file: Path = Path("/proc/self/oom_score_adj")) -> None:
    """Limit this process to `size` bytes of RLIMIT_AS or RLIMIT_DATA and raise its OOM score; raises OSError."""
    if int(score_file.read_text()) < OOM_SCORE:  # to raise it needs no right, to lower it does
        score_file.write_text(str(OOM_SCORE))
    _, hard = resource.getrlimit(kind)
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(kind, (size, size))
