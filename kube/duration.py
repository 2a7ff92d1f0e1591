"""Durations in Go's notation (1h30m, 15.012s, 250ms), which upstream's files and APIs use."""

from __future__ import annotations

import re

from kube.group_patterns import fullmatch

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|us|µs|μs|ns|m|s)")
_WHOLE = re.compile(rf"[+-]?(?:{_PART.pattern})+")
GREATEST = 2**63 / 1e9
"""Seconds that Go's 64 bits of nanoseconds reach to."""


def parse(text: str) -> float:
    """Return a duration in seconds; ValueError where it is none."""
    if text in ("0", "+0", "-0"):
        return 0.0
    if not fullmatch(_WHOLE, text):
        raise ValueError(f'invalid duration "{text}"')
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if total >= GREATEST:
        raise ValueError(f'invalid duration "{text}"')
    return -total if text.startswith("-") else total


def render(seconds: float) -> str:
    """Print a length of time to the millisecond: 350ms, 15.012s, 1m0s, 1h1m1.5s."""
    millis = round(seconds * 1000)
    if 0 < millis < 1000:
        return f"{millis}ms"
    minutes, millis = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{millis / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
