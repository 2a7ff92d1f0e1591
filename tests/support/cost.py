"""Judges how the cost of reading an input grows with its length: it is to be linear up to the largest input there can be.

Three measures, because none sees everything. Lines that Python executes are counted exactly, on short inputs, and are the same
on every run, and so is the memory that is taken at its most. What runs inside one line (a regular expression, a copy, `in` of a
list, int()) shows in CPU time alone. That is measured on inputs that grow fourfold, and judged only where the largest
takes long enough to matter: a largest input that is quick needs no judgement, one that is slow must not have grown faster than
its input.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Set
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from kube.errors import StatusError

Build = Callable[[int], Any]
"""Makes an input of about so many bytes."""
REFUSED = (ValueError, StatusError)
SMALL = 1024
LARGEST = int(os.environ.get("WHERRY_COST_BYTES", "131072"))
"""Bytes of the longest input; a body has 3 MiB at most, but what is linear up to here is so beyond."""
STEPS_EXPONENT = 1.25
TIME_EXPONENT = 1.5
QUICK = 0.0075
"""Seconds of the processor that an input may take whatever its length: what is quadratic takes 4 s for the longest body."""
TRIES = 3
TOO_SLOW = 4.0
"""Seconds that no input may take, however its cost grows."""
LITTLE = 1024 * 1024
"""Bytes of memory that an input may take whatever its length: of less, lists that are used again are a part."""
MEMORY_EXPONENT = 1.5


class Lines:
    """Counter of the lines of Python that are executed while it is entered.

    The tracer is a closure: a method is bound once more for each line, which takes three times as long as to count it.
    """

    def __init__(self, left_out: Set[str] = frozenset()) -> None:
        """Leave out functions whose path has one of these names in it."""
        number = 0
        known: dict[str, bool] = {}

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal number
            if event == "line":
                number += 1
            return line

        def called(frame: FrameType, event: str, argument: Any) -> Any:
            file = frame.f_code.co_filename
            counted = known.get(file)
            if counted is None:
                counted = known[file] = left_out.isdisjoint(file.split("/"))
            return line if counted else None

        self._trace = called if left_out else line
        self._number = lambda: number

    @property
    def count(self) -> int:
        return self._number()

    def __enter__(self) -> Self:
        self._before, self._collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # what ends with a collection may execute lines, and that is at any time
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        if self._collects:
            gc.enable()


class TooExpensive(AssertionError):
    """The cost grows faster than the input."""


@dataclass(frozen=True)
class Case:
    """A reader and its worst input. `largest`: bytes of the longest input that reaches it; `memory`: bytes a byte may take."""

    name: str
    build: Build
    read: Callable[[Any], object]
    largest: int = LARGEST
    refused: tuple[type[Exception], ...] = REFUSED
    memory: float = 600


def run(case: Case, given: Any) -> None:
    """Read an input; a refusal is an answer like any other, but not one that says the server is to blame."""
    try:
        case.read(given)
    except case.refused as error:
        if isinstance(error, StatusError) and not 400 <= error.code < 500:
            raise


def steps(case: Case, given: Any) -> int:
    """Return how many lines of Python are executed to read an input."""
    with Lines() as lines:
        run(case, given)
    return lines.count


def seconds(case: Case, given: Any) -> float:
    """Return the CPU time of this thread to read an input."""
    gc.disable()
    try:
        begin = time.thread_time()
        run(case, given)
        return time.thread_time() - begin
    finally:
        gc.enable()


def exponent(points: list[tuple[int, float]], last: int = 1) -> float:
    """Return k of cost ~ length^k between two neighbouring points; `last` 1: the last two, 2: the two before."""
    (short, little), (long, much) = points[-1 - last], points[-last]
    return math.log(max(much, 1e-9) / max(little, 1e-9)) / math.log(long / short)


def too_steep(points: list[tuple[int, float]], limit: float) -> bool:
    """Return whether two steps in a row are steep: one alone may be a threshold, behind which more has to be done."""
    return len(points) > 2 and exponent(points) > limit and exponent(points, 2) > 1 + (limit - 1) / 2


def judge_steps(case: Case, small: int = SMALL) -> None:
    """Raise TooExpensive if the lines executed grow faster than the input."""
    small = small if small <= case.largest else max(1, case.largest // 8)
    sizes = [size for size in (small, 4 * small, 8 * small) if size <= case.largest]
    run(case, case.build(small // 4))  # what is made once and kept does not count
    points = [(size, float(steps(case, case.build(size)))) for size in sizes]
    if points[-1][1] > 1000 and too_steep(points, STEPS_EXPONENT):
        raise TooExpensive(f"{case.name}: lines grow with exponent {exponent(points):.2f}: {points}")


def _goes_on(case: Case, last: tuple[int, float]) -> bool:
    """Return whether the time is as steep beyond an input, where longer ones are read: memory has thresholds (mmap), too."""
    if case.largest < LARGEST:
        return True
    longer = 2 * last[0]
    points = [last, (longer, min(seconds(case, case.build(longer)) for _ in range(TRIES)))]
    return exponent(points) > TIME_EXPONENT


def judge_time(case: Case, small: int = 8 * SMALL) -> None:
    """Raise TooExpensive if a large input is slow, and the time grew faster than the input, or is absurd."""
    size, points = min(small, case.largest), list[tuple[int, float]]()
    while True:
        points.append((size, seconds(case, case.build(size))))
        if points[-1][1] > QUICK and too_steep(points, TIME_EXPONENT):
            tries = [[(n, seconds(case, case.build(n))) for n, _ in points[-3:]] for _ in range(TRIES)]
            points = [min(same, key=lambda point: point[1]) for same in zip(*tries, points[-3:], strict=True)]
            if too_steep(points, TIME_EXPONENT) and _goes_on(case, points[-1]):
                raise TooExpensive(f"{case.name}: time grows with exponent {exponent(points):.2f}: {points}")
        if points[-1][1] > TOO_SLOW:
            raise TooExpensive(f"{case.name}: an input takes {points[-1][1]:.1f} s: {points}")
        if size >= case.largest:
            return
        size = min(4 * size, case.largest)


def peak(case: Case, given: Any) -> int:
    """Return the bytes of memory that it takes to read an input, at their most."""
    gc.collect(0)
    tracemalloc.start()
    try:
        run(case, given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def judge_memory(case: Case, small: int = 4 * SMALL) -> None:
    """Raise TooExpensive if memory grows faster than the input, or is more than so many times the input."""
    small = min(small, case.largest)
    run(case, case.build(small // 4))
    points = [(size, float(peak(case, case.build(size)))) for size in (small, 4 * small) if size <= case.largest]
    size, most = points[-1]
    if most > case.memory * size + LITTLE // 4:
        raise TooExpensive(f"{case.name}: {most:.0f} bytes of memory for an input of {size}")
    if len(points) > 1 and most > LITTLE and exponent(points) > MEMORY_EXPONENT:
        raise TooExpensive(f"{case.name}: bytes of memory grow with exponent {exponent(points):.2f}: {points}")


def judge(case: Case) -> None:
    """Raise TooExpensive if steps, time or memory are not in proportion to the input."""
    judge_steps(case)
    judge_time(case)
    judge_memory(case)
