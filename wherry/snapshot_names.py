"""Names of snapshot files. Scheduled ones have a form that no other command writes, because retention deletes by it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from wherry.errors import UsageError

SUFFIX = ".db"
MANUAL, SCHEDULED = "snapshot", "scheduled"
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TIME = r"-[0-9]{8}-[0-9]{6}"


def new_name(prefix: str, now: datetime) -> str:
    """Return the name of a file that is written now."""
    return f"{prefix}-{now.astimezone(UTC):%Y%m%d-%H%M%S}{SUFFIX}"


def manual(prefix: str, now: datetime) -> str:
    """Return the name of a snapshot that a person takes; raises WherryError for one that a schedule may have."""
    prefix = prefix or MANUAL
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"--name {prefix}: use letters, digits, -, _ and ., at most 100")
    if prefix.startswith(SCHEDULED):
        raise UsageError(f"--name {prefix}: names that begin with {SCHEDULED} are those of scheduled snapshots")
    return new_name(prefix, now)


def scheduled(node: str, now: datetime) -> str:
    """Return the name of a scheduled snapshot of a machine."""
    return new_name(f"{SCHEDULED}-{node}", now)


def is_scheduled(name: str, node: str = "") -> bool:
    """Return whether a file has the name of a scheduled snapshot, of one machine or of any."""
    of = re.escape(node) if node else r"[a-z0-9.-]+"
    return re.fullmatch(rf"{SCHEDULED}-{of}{_TIME}{re.escape(SUFFIX)}", name) is not None


def surplus(names: list[str], node: str, kept: int, newest: str = "") -> list[str]:
    """Return the names of scheduled snapshots of a machine that are more than those to keep, the oldest first.

    `newest` was taken last and is kept: times in others' names may be later, from before the clock was corrected.
    """
    found = sorted((name for name in names if is_scheduled(name, node)), key=lambda name: (name == newest, name))
    return found[: max(0, len(found) - kept)]
