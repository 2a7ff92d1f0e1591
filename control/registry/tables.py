"""Times in the server-side tables of `kubectl get`: the age of an object, in one or two units.

The form is apimachinery's duration.HumanDuration: the finer the unit, the more of it is shown, so that an age never
takes more than a few characters.
"""

from __future__ import annotations

from datetime import datetime

from kube.clock import parse_time

UNKNOWN = "<unknown>"


def human_duration(seconds: float) -> str:
    """Return a length of time as upstream's duration.HumanDuration prints it: 5s, 2m10s, 3h5m, 4d, 2y15d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // 3600
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    if years < 8:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def age(timestamp: str | None, now: datetime) -> str:
    """Return how long ago an RFC 3339 time was, "<unknown>" where there is none."""
    return between(timestamp, now) if timestamp else UNKNOWN


def between(start: str, end: str | datetime) -> str:
    """Return how long it was from a time to another, "<unknown>" if one is no time: an older version stored such."""
    try:
        until = parse_time(end) if isinstance(end, str) else end
        return human_duration((until - parse_time(start)).total_seconds())
    except (ValueError, OverflowError):
        return UNKNOWN
