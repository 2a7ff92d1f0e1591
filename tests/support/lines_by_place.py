"""Counter of the lines of the project's code by their place, which tells where a cost grows with a square or a product."""

from __future__ import annotations

import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import control

ROOT = Path(control.__file__).parents[1]
FOLDERS = (f"{ROOT}/control/", f"{ROOT}/kube/")
OURS = f"{ROOT}/kube/clock.py"  # the test's own waiting
SQUARE = 0.1
"""The most that the square of a number may count: to compare each with each before it counts 0.5."""
SHARE = 0.1
"""A line is judged of whose executions so much is product or square; a pure square of four times as many has 0.4."""
Place = tuple[str, int]
"""File and line."""


class Lines:
    """Counts the lines of the project's code that are executed while it is entered, each by its place."""

    def __init__(self) -> None:
        self.number = self.longest = 0
        self.large = Counter[Place]()
        """Those that the large object's last change took."""
        self._began = 0
        self._copied = Counter[Place]()
        self._counts: list[tuple[CodeType, dict[int, int]]] = []
        self._tracers: dict[int, Callable[..., Any] | None] = {}
        """Tracer of each function, by the identity of its code: a hash of the code takes longer than a line."""
        self._known: list[CodeType] = []
        self._loop: set[int] = set()
        """Functions of the event loop that call the next task."""

    def __enter__(self) -> Lines:
        self._before, self._collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # what ends with a collection may execute lines, and that is at any time
        _Entered.lines = self
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        if self._collects:
            gc.enable()
        _Entered.lines = None
        self.suspended()

    @property
    def counts(self) -> Counter[Place]:
        found = self._copied.copy()
        for code, lines in self._counts:
            file = code.co_filename[len(str(ROOT)) + 1 :]
            for line, count in lines.items():
                found[file, line] += count
        return found

    def copied(self, file: str, line: int, entries: int) -> None:
        """Count entries that a line copies."""
        if file != OURS:
            self._copied[file[len(str(ROOT)) + 1 :], line] += entries

    def suspended(self) -> None:
        self.longest = max(self.longest, self.number - self._began)
        self._began = self.number

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        number = id(frame.f_code)
        try:
            tracer = self._tracers[number]
        except KeyError:
            tracer = self._tracers[number] = self._tracer(frame.f_code)
        if tracer is None and number in self._loop:
            self.suspended()
        return tracer

    def _tracer(self, code: CodeType) -> Callable[..., Any] | None:
        """Return what counts the lines of a function: a closure, which is called three times as fast as a method."""
        self._known.append(code)
        file = code.co_filename
        if file.endswith("asyncio/events.py") and code.co_name == "_run":
            self._loop.add(id(code))
        if not file.startswith(FOLDERS) or file == OURS:
            return None
        counts = defaultdict[int, int](int)
        self._counts.append((code, counts))

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self.number += 1
                counts[frame.f_lineno] += 1
            return line

        return line


class _Entered:
    """Those lines that are counted at the time."""

    lines: Lines | None = None


def copied(file: str, line: int, entries: int) -> None:
    """Count entries that a line copies in C code, while lines are counted."""
    if _Entered.lines is not None:
        _Entered.lines.copied(file, line, entries)


def squares(size: int, few: Counter[Place], twice: Counter[Place], four: Counter[Place]) -> dict[Place, float]:
    """Return the lines whose number grows with a square, from a parabola through three points."""
    found = {}
    for place, count in four.items():
        rise = count - 3 * twice[place] + 2 * few[place]
        if rise > max(SQUARE * 6 * size * size, SHARE * count):
            found[place] = round(rise / (6 * size * size), 2)
    return found
