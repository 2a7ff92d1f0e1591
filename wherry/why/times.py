"""Times of the API as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def parsed(text: str | None) -> datetime | None:
    """Return a time of the API (RFC 3339); None for what is none."""
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def duration(seconds: float) -> str:
    """Return a duration with two units at most, as kubectl: 5s, 2m13s, 3h, 4d2h; less than 10 s with milliseconds."""
    if seconds < 10:
        return f"{max(0, round(seconds * 1000))}ms" if seconds < 1 else f"{seconds:.1f}s"
    whole = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, whole = divmod(whole, size)
        if amount or parts:
            parts.append(f"{amount}{unit}" if amount else "")
        if len(parts) == 2:
            break
    return "".join(parts)


def ago(time: datetime | None, now: datetime) -> str:
    """Return how long ago something was, "some time ago" if its time is not known."""
    return f"{duration((now - time).total_seconds())} ago" if time is not None else "some time ago"
