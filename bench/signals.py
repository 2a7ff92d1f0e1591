"""Signals that end a benchmark: it cleans up first, as after an error."""

from __future__ import annotations

import signal
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def end_in_order() -> None:
    """Have the first of these signals raise SystemExit (128 and its number) in the main thread; later ones are ignored.

    Set even where SIGINT is ignored, as it is in what a script starts in the background. Programs that are started meanwhile
    have the usual handlers.
    """
    for number in ENDING:
        signal.signal(number, _first)


def _first(number: int, frame: FrameType | None) -> None:
    for each in ENDING:
        signal.signal(each, _later)
    raise SystemExit(128 + number)


def _later(number: int, frame: FrameType | None) -> None:
    """Taking a cluster away takes some seconds; a half of it would stay."""
