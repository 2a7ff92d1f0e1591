"""Known differences from upstream in authorization requests and responses, and their consequences.

A row is for one difference and goes with it: the tests fail for a row that no request shows any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.authorised.calls import Call


@dataclass(frozen=True)
class Difference:
    """`concerns` tells a violation of this kind; `forms` are the requests that show it."""

    name: str
    forms: tuple[str, ...]
    concerns: Callable[[Call, str], bool]
    why: str


OPEN: tuple[Difference, ...] = ()


def known(call: Call, text: str) -> str:
    """Return the name of the difference that a violation is, "" for none."""
    return next((difference.name for difference in OPEN if difference.concerns(call, text)), "")
