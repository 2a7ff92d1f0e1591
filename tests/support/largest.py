"""Objects with the largest number that the API accepts for every integer field, and a judge of what is done for them."""

from __future__ import annotations

import contextlib
import resource
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
LONG = {
    "active_deadline_seconds",
    "generation",
    "observed_generation",
    "revision",
    "starting_deadline_seconds",
    "termination_grace_period_seconds",
    "toleration_seconds",
}
"""Fields of 64 bits."""
MOST_LINES = 50_000
"""Lines of Python that a plan may take; what depends on the size of a number takes thousands of millions."""
SPARE_BYTES = 512 * 1024 * 1024
"""Memory that a plan may take: what is spelled out within one line of Python shows here alone."""


class Endless(AssertionError):
    """The work depends on the size of a number."""


def largest(kind: Any) -> Any:
    """Return an object of a type with the largest number in each integer field, however deep; other fields are left out.

    Metadata and selectors are left as they are when nothing is said.
    """
    values = {}
    for found in msgspec.structs.fields(kind):
        if found.name not in ("metadata", "selector") and (value := _value(found.type, found.name)) is not None:
            values[found.name] = value
        elif found.required:
            values[found.name] = "x"
    return kind(**values)


def _value(kind: Any, name: str) -> Any:
    if isinstance(kind, types.UnionType):
        return next((value for each in typing.get_args(kind) if (value := _value(each, name)) is not None), None)
    if kind is int:
        return MAX_INT64 if name in LONG else MAX_INT32
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return largest(kind)
    if typing.get_origin(kind) is list:
        (each,) = typing.get_args(kind)
        return [value] if isinstance(each, type) and (value := _value(each, name)) is not None else None
    return None


@contextlib.contextmanager
def bounded(lines: int = MOST_LINES) -> Iterator[None]:
    """Refuse what takes too many steps (Endless) or too much memory (MemoryError) for what it is given."""
    count = 0

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        if count > lines:
            raise Endless(f"more than {lines} lines, the last in {frame.f_code.co_qualname}:{frame.f_lineno}")
        return line

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = sys.gettrace()
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + SPARE_BYTES, limits[1]))
    sys.settrace(line)
    try:
        yield
    finally:
        sys.settrace(before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def judged(work: Callable[..., T], *given: Any, **named: Any) -> T:
    """Do the work within those bounds and return its answer."""
    with bounded():
        return work(*given, **named)
