"""The line of `wherry status` about the scheduled snapshots of this machine."""

from __future__ import annotations

from datetime import UTC, datetime

from kube.clock import format_time
from wherry import snapshot_state
from wherry.discovery import duration
from wherry.output import size
from wherry.settings import Settings
from wherry.snapshot_options import machine_zone


def line(settings: Settings, now: datetime) -> str:
    """Return the line: the last snapshot, and the failure or the next one. Empty if there is no schedule."""
    try:
        schedule = settings.snapshot_options.scheduled
    except ValueError:
        return ""
    if schedule is None or settings.is_worker:
        return ""
    state = snapshot_state.load(settings)
    last = "none yet"
    if state.succeeded:
        age = duration(max(0.0, now.timestamp() - state.succeeded))
        last = f"the last one {age} ago ({state.path}, {size(state.size)})"
    if state.problem:
        when = format_time(datetime.fromtimestamp(state.attempted, UTC))
        return f"snapshots: {last}; FAILED at {when}: {state.problem}"
    coming = schedule.after(now, machine_zone())
    return f"snapshots: {last}" + (f", the next one at {format_time(coming)}" if coming else "")
