"""A report of an oracle."""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """A rule that was broken."""

    rule: str
    text: str
    at: float
    """Virtual seconds since the start."""
    step: int = 0
    """Iterations of all event loops until then."""
