"""Results of the scheduled snapshots of this machine, kept in a file: for the schedule, metrics and `wherry status`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from kube.files import write_file
from wherry.settings import Settings


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds since 1970, 0 for never; sizes in bytes."""

    since: float = 0
    """Time of the first start with a schedule."""
    attempted: float = 0
    succeeded: float = 0
    path: str = ""
    """The last snapshot."""
    size: int = 0
    copied: float = 0
    """Time of the last copy to S3."""
    unfinished: str = ""
    """The last snapshot if it is written, but its copy failed or surplus ones could not be deleted."""
    failures: int = 0
    """Attempts since the last success that failed."""
    problem: str = ""
    """Reason of the failure of the last attempt, to write the file or to copy it; empty if it succeeded."""


def path_of(settings: Settings) -> Path:
    return settings.layout.state / "control" / "snapshots.json"


def load(settings: Settings) -> State:
    """Return the saved state; an empty one if there is none or it is damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path_of(settings).read_bytes(), type=State)
    return State()


def save(settings: Settings, state: State) -> None:
    """Save the state for the next process; raises OSError."""
    write_file(path_of(settings), msgspec.json.encode(state), 0o600)
