"""Steps of a command on a terminal, and in a pipe or a log."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from wherry import progress
from wherry.progress import Progress, position_in, size_of, step


def pipe() -> Console:
    return Console(file=io.StringIO(), highlight=False)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: seconds)


def test_the_amount_has_a_total_and_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 100.0)
    found = Progress("load")
    assert found.amount() == ""
    found.total = 48 << 20
    found.add(12 << 20)
    assert found.amount() == "12 MiB of 48 MiB"
    at(monkeypatch, 102.0)
    assert found.amount() == "12 MiB of 48 MiB, 6.0 MiB/s"
    found.add(36 << 20)
    assert found.amount() == "48 MiB, 24 MiB/s"
    found.total += 10
    assert found.amount() == "48 MiB, 24 MiB/s"
    keys = Progress("move", "keys")
    keys.add(7)
    assert keys.amount() == "7 keys"


def test_a_pipe_gets_one_line_a_step_with_its_duration_and_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    console = pipe()
    at(monkeypatch, 0.0)
    with step("load [red]a.tar", to=console) as found:
        found.add(3 << 20)
        at(monkeypatch, 1.5)
    with step("stop", to=console):
        pass
    assert shown(console) == "✓ load [red]a.tar (3.0 MiB, 2.0 MiB/s, 1.5 s)\n✓ stop (0.0 s)\n"


def test_a_step_that_fails_is_marked() -> None:
    console = pipe()
    with pytest.raises(KeyError), step("load", to=console):
        raise KeyError
    assert shown(console) == "✗ load\n"


def test_a_step_that_lasts_is_shown_in_a_log_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.001)
    console, printed = pipe(), threading.Event()
    write = console.file.write

    def note(text: str) -> int:
        if "so far" in text:
            printed.set()
        return write(text)

    monkeypatch.setattr(console.file, "write", note)
    with step("load", to=console) as found:
        found.add(5)
        assert printed.wait(10)
    first, *_, last = shown(console).splitlines()
    assert first.startswith("… load (") and first.endswith("s so far)") and last.startswith("✓ load (5 B")


def test_a_terminal_is_never_exceeded_and_redrawn_ten_times_a_second_at_most() -> None:
    assert progress.REDRAWN_A_SECOND <= 10
    for width in (20, 40, 200):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        found = Progress("load /a/very/long/path/of/an/archive.tar")
        found.set(7 << 20, 48 << 20)
        console.print(progress._Line(found))
        (line,) = shown(console).splitlines()
        assert len(line.rstrip()) < width and ("…" in line) == (width < 60)
        assert ("7.0 MiB of 48 MiB" in line) == (width > 20)
        assert ("██░░░" in line) == (width > 60)


def test_a_known_total_is_drawn_as_a_bar() -> None:
    found = Progress("load")
    found.add(5)
    assert found.bar() == ""
    for done, filled in ((0, 0), (1, 0), (24, 10), (47, 19), (48, 20), (60, 20)):
        found.set(done, 48)
        assert found.bar() == "█" * filled + "░" * (20 - filled)


def test_a_line_names_what_is_worked_on_beside_the_bar_and_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 0.0)
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    found = Progress("collect logs", "items")
    found.set(6, 12)
    found.now = "logs/agent.log"
    at(monkeypatch, 2.0)
    console.print(progress._Line(found))
    bar = "█" * 10 + "░" * 10
    assert shown(console).rstrip()[2:] == f"collect logs: logs/agent.log  {bar}  6 of 12 items, 3/s"


def test_the_size_of_a_file_that_was_renamed_is_its_total(tmp_path: Path) -> None:
    partial, found = tmp_path / "a.partial", Progress("write")
    partial.write_bytes(b"abc")
    found.total = 5
    with size_of(partial, found):
        partial.rename(tmp_path / "a")
    assert found.done == 5


def test_a_terminal_shows_one_line_after_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 5.0)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with step("load", to=console):
        pass
    assert "✓ load (0.0 s)" in shown(console).splitlines()[-1]


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert done()


def test_the_size_of_a_file_that_grows_is_the_amount(tmp_path: Path) -> None:
    found = Progress("write")
    with size_of(tmp_path / "a", found):
        (tmp_path / "a").write_bytes(b"12345")
        wait_until(lambda: found.done == 5)
        (tmp_path / "a").write_bytes(b"1234567")
    assert found.done == 7


def test_the_position_of_a_program_in_a_file_is_the_amount(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    found = Progress("load")
    with (tmp_path / "a").open("rb") as file, position_in(file.fileno(), found):
        assert found.total == 100_000
        inherited = os.dup(file.fileno())  # as a program has it
        os.read(inherited, 70_000)
        wait_until(lambda: found.done == 70_000)
        os.read(inherited, 70_000)
        os.close(inherited)
    assert found.done == 100_000
