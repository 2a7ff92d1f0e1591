"""Detection of interpreters that never free interned strings.

CPython 3.12.0 to 3.12.6, and builds without the global interpreter lock, keep each interned string until the process ends.
pathlib interns every part of a path, and the daemons make paths of keys of ConfigMaps, UIDs and names of volumes, so whoever
may write these could fill a node's memory. Distributions backport the fix under the old version number, so the property is
measured. Tests and short-lived commands may run on such an interpreter.

    python -I kube/interned_strings.py      # exit status 1, with the problem on standard error, if it is one
"""

from __future__ import annotations

import logging
import os
import sys

FIX = "install Wherry with Python 3.11, or 3.12.7 or later with the global interpreter lock"
_IMMORTAL = 1 << 24
"""More references than a new string has; immortal objects count at least 2**29 on all platforms."""


def problem() -> str:
    """Return what is wrong with this interpreter, "" if it frees interned strings."""
    fresh = sys.intern(os.urandom(16).hex())  # noqa: TID251 -- one string, to find out what becomes of it
    if sys.getrefcount(fresh) < _IMMORTAL:
        return ""
    version = sys.version.split()[0]
    return f"Python {version} ({sys.executable}) never frees interned strings: names that users choose fill the memory"


def warn(log: logging.Logger) -> None:
    """Log a warning if a daemon runs on such an interpreter."""
    if found := problem():
        log.warning("%s; %s", found, FIX)


if __name__ == "__main__":
    if found := problem():
        sys.exit(f"{found}; {FIX}")
