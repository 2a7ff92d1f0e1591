"""Steps of a command: shown while they run, and one line about each when it ends, with its duration, amount and rate.

On a terminal a step is one line that is redrawn eight times a second by a thread, and is never wider than the terminal; it
has a bar if the total is known. In a pipe or a log nothing is redrawn: a step that lasts adds a line every half minute, so that
a log shows what runs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from wherry.output import size
from wherry.terminal import console, styled

REDRAWN_A_SECOND = 8
LINE_SECONDS = 30.0
"""Seconds between two lines about a step that runs, where nothing can be redrawn."""
LEAST_WIDTH = 12
"""Characters of a step's name that a narrow terminal shows before its amount is cut."""
BAR_CELLS = 20
"""Characters of a bar, which a terminal without room for it does not show."""
ELLIPSES = 4
"""Characters by which two ellipses are longer in ASCII (wherry/encoding.py)."""
BYTES = "bytes"


class Progress:
    """The amount of work that a step has done: bytes, or numbers of something else. `total` is 0 if it is not known.

    `missing` is the part of `done` that failed, `now` is what is worked on, shown on a terminal.
    """

    def __init__(self, what: str, unit: str = BYTES) -> None:
        self.what, self.unit = what, unit
        self.done = self.total = self.missing = 0
        self.now = ""
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def add(self, amount: int) -> None:
        """Count work that was done; from any thread."""
        self.done += amount

    def set(self, done: int, total: int) -> None:
        """Set both amounts, for work that counts by itself."""
        self.done, self.total = done, total

    def again(self) -> None:
        """Count from 0 again, for work that is repeated after a failure."""
        self.done = 0

    def amount(self) -> str:
        """Return the amount with its rate, such as `12 MiB of 48 MiB, 5.0 MiB/s`; empty if nothing was counted."""
        if not self.done:
            return ""
        done, total = self._text(self.done), self._text(self.total)
        if self.missing:
            return f"{self._text(self.done - self.missing)} of {done} {self.unit}"
        of = f" of {total}" if self.total > self.done and total != done else ""
        each_second = int(self.done / self.elapsed) if self.elapsed >= 0.1 else 0
        rate = f", {self._text(each_second)}/s" if each_second else ""
        unit = "" if self.unit == BYTES else f" {self.unit}"
        return f"{done}{of}{unit}{rate}"

    def bar(self, cells: int = BAR_CELLS) -> str:
        """Return a bar of the work that was done; empty if the total is not known."""
        if not self.total:
            return ""
        filled = min(cells, cells * self.done // self.total)
        return "█" * filled + "░" * (cells - filled)

    def _text(self, number: int) -> str:
        return size(number) if self.unit == BYTES else str(number)


class _Line:
    """The line of a step that runs, as long as the terminal is wide at most."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._spinner = progress, Spinner("dots", style="green")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        longer = ELLIPSES if options.ascii_only else 0
        mark, width = self._spinner.render(console.get_time()), max(1, options.max_width - 1 - longer)
        amount, bar = self._progress.amount(), self._progress.bar()
        if width < 4 + LEAST_WIDTH + BAR_CELLS + len(amount):
            bar = ""
        what = styled(self._progress.what + (f": {self._progress.now}" if self._progress.now else ""))
        rest = "".join(f"  {part}" for part in (bar, amount) if part)
        # The name is cut before the amount is.
        what.truncate(max(LEAST_WIDTH, width - 2 - len(rest)), overflow="ellipsis")
        text = Text.assemble(mark if isinstance(mark, Text) else "", " ", what, (rest, "dim"))
        text.truncate(width, overflow="ellipsis")
        text.no_wrap = True
        yield text


@contextlib.contextmanager
def step(what: str, unit: str = BYTES, *, to: Console | None = None) -> Iterator[Progress]:
    """Show a step while it runs and leave one line about it; work that the block counts is shown with its rate.

    Commands whose output is data show their steps on standard error.
    """
    to = to or console
    progress = Progress(what, unit)
    try:
        with _live(progress, to) if to.is_terminal else _lines(progress, to):
            yield progress
    except BaseException:
        _print(to, "✗", "red", progress, "")
        raise
    amount = progress.amount()
    mark, style = ("!", "yellow") if progress.missing else ("✓", "green")
    _print(to, mark, style, progress, f" ({f'{amount}, ' if amount else ''}{progress.elapsed:.1f} s)")


@contextlib.contextmanager
def size_of(path: Path, progress: Progress) -> Iterator[None]:
    """Show the size of a file, which another program or library writes, as the amount of a step.

    If it has another name in the end, all of the total was written.
    """

    def look() -> None:
        with contextlib.suppress(OSError):
            progress.done = path.stat().st_size

    with _repeated(look, 1 / REDRAWN_A_SECOND, f"size of {path}"):
        yield
    if path.exists() or not progress.total:
        look()
    else:
        progress.done = progress.total


@contextlib.contextmanager
def position_in(descriptor: int, progress: Progress) -> Iterator[None]:
    """Show the position in an open file as the amount of a step; a program that inherited the descriptor moves it.

    The total is the size of the file, unless it is set: a file that is written has none yet.
    """
    progress.total = progress.total or os.fstat(descriptor).st_size

    def look() -> None:
        with contextlib.suppress(OSError):
            progress.done = os.lseek(descriptor, 0, os.SEEK_CUR)

    with _repeated(look, 1 / REDRAWN_A_SECOND, f"position in {descriptor}"):
        yield
    look()


def _live(progress: Progress, to: Console) -> Live:
    return Live(_Line(progress), console=to, transient=True, refresh_per_second=REDRAWN_A_SECOND)


def _lines(progress: Progress, to: Console) -> contextlib.AbstractContextManager[None]:
    """Print a line every half minute for as long as the block runs."""

    def work() -> None:
        amount = progress.amount()
        _print(to, "…", "dim", progress, f" ({f'{amount}, ' if amount else ''}{progress.elapsed:.0f} s so far)")

    return _repeated(work, LINE_SECONDS, f"progress of {progress.what}")


@contextlib.contextmanager
def _repeated(work: Callable[[], None], seconds: float, name: str) -> Iterator[None]:
    """Do something every so many seconds in a thread, for as long as the block runs."""
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _print(to: Console, mark: str, style: str, progress: Progress, rest: str) -> None:
    to.print(styled((mark, style), f" {progress.what}", (rest, "dim")), soft_wrap=True)
    to.file.flush()
