"""Inputs that grow, and what makes cases of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.support.cost import LARGEST, Case

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = 64 * 1024
"""Bytes of a request's head, and so of a URL, a query or a header."""
OBJECT = LARGEST


def fill(unit: bytes | str, before: bytes | str = "", after: bytes | str = "") -> Callable[[int], Any]:
    """Repeat a unit to so many bytes, between a beginning and an end."""

    def build(size: int) -> Any:
        return before + unit * max(1, size // len(unit)) + after  # type: ignore[operator]

    if isinstance(unit, bytes):
        before, after = (part.encode() if isinstance(part, str) else part for part in (before, after))
    return build


def combining(before: str = "", after: str = "") -> Callable[[int], str]:
    """Make combining characters in the order that is the worst for a normal form: each has to pass half of them."""
    return lambda size: before + "a" + "\u0300" * (size // 4) + "\u0316" * (size // 4) + after


def each(form: str, before: str = "", after: str = "", unit: int = 0) -> Callable[[int], str]:
    """Repeat a form with a number in it, so that no two are the same."""

    def build(size: int) -> str:
        return before + "".join(form % i for i in range(max(1, size // (unit or len(form) + 3)))) + after

    return build


def encoded(build: Callable[[int], str]) -> Callable[[int], bytes]:
    return lambda size: build(size).encode()


def as_json(make: Callable[[int], Any]) -> Callable[[int], bytes]:
    return lambda size: json.dumps(make(size), separators=(",", ":")).encode()


def cases(
    what: str, worst: dict[str, Callable[[int], Any]], read: Callable[[Any], object], **limits: Any
) -> list[Case]:
    """Make a case of each input of a reader."""
    return [Case(f"{what}: {name}", build, read, **limits) for name, build in worst.items()]
