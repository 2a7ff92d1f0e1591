"""Accounts that can change what is at a path: owners of it and of each folder above it, and others whom a mode allows it."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Collection
from pathlib import Path

_OTHERS = 0o022


def problem_of(path: Path, owners: Collection[int] = (0,)) -> str:
    """Return the sentence about another account than `owners` that may write a path or replace it; "" if there is none.

    The folders above it count, also those of what it is a link to; what does not exist does not. Raises OSError.
    """
    for start in (path, path.resolve()):
        for each in (start, *start.parents):
            with contextlib.suppress(FileNotFoundError):
                found = each.stat()
                if found.st_uid not in owners:
                    return f"{_name(found.st_uid)} may write it, the owner of {each}"
                sticky = each != start and found.st_mode & 0o1000
                if found.st_mode & _OTHERS and not sticky:
                    return f"other accounts may write it: `chmod go-w {each}`"
    return ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def trusted(account: int = -1) -> set[int]:
    """Return root, this account, and the control plane's unless it is -1."""
    return {0, os.geteuid()} | ({account} if account != -1 else set())
