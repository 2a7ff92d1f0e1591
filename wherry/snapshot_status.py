"""The part of `wherry status` about the scheduled snapshots of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from kube.clock import format_time
from wherry import snapshot_state
from wherry.discovery import duration
from wherry.output import size
from wherry.settings import Settings
from wherry.snapshot_options import machine_zone


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The last and the next scheduled snapshot; times in RFC 3339, empty for none, and size in bytes."""

    last: str
    path: str
    size: int
    next: str
    attempted: str
    """Time of the last attempt."""
    problem: str
    """Reason of the failure of the last attempt; empty if it succeeded."""


def read(settings: Settings, now: datetime) -> Snapshots | None:
    """Return the state of the schedule; None if there is none."""
    try:
        schedule = settings.snapshot_options.scheduled
    except ValueError:
        return None
    if schedule is None or settings.is_worker:
        return None
    state, coming = snapshot_state.load(settings), schedule.after(now, machine_zone())
    return Snapshots(
        last=_time(state.succeeded),
        path=state.path,
        size=state.size,
        next=format_time(coming) if coming else "",
        attempted=_time(state.attempted),
        problem=state.problem,
    )


def line(found: Snapshots, now: datetime) -> str:
    """Return the line: the last scheduled snapshot, and the failure or the next one."""
    last = "no scheduled one yet"
    if found.last:
        age = duration(max(0.0, (now - datetime.fromisoformat(found.last)).total_seconds()))
        last = f"the last scheduled one {age} ago ({found.path}, {size(found.size)})"
    if found.problem:
        return f"snapshots: {last}; FAILED at {found.attempted}: {found.problem}"
    return f"snapshots: {last}" + (f", the next one at {found.next}" if found.next else "")


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC)) if seconds else ""
