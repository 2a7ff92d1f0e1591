"""Texts of others in the output of commands: printed as they are, whatever they contain."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

from wherry import check, daemons, disk_space, main, progress, reset, terminal
from wherry.check import Finding
from wherry.errors import WherryError
from wherry.progress import step
from wherry.settings import Settings
from wherry.terminal import PlainConsole

BRACKETS = "running [/usr/sbin/iptables -t nat -X CNI-DN-1 --wait]: exit status 4 [bold]x[/] :warning:"
CONTROL = "a\x1b]0;title\x07b\x1b[31m\rc\u202ed\udcff"
ESCAPED = r"a\x1b]0;title\x07b\x1b[31m\rc\u202ed\udcff"


@pytest.fixture(params=[False, True], ids=["pipe", "terminal"])
def printed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    file = io.StringIO()
    console = PlainConsole(file=file, width=500, force_terminal=request.param, color_system=None)
    for module in (terminal, progress, reset, check, main):
        for name in ("console", "errors"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, console)
    return file


@pytest.mark.parametrize(("text", "shown"), [(BRACKETS, BRACKETS), (CONTROL, ESCAPED), ("a\nb", "a\nb")])
def test_texts_are_printed_as_they_are_without_what_commands_the_terminal(
    printed: io.StringIO, text: str, shown: str
) -> None:
    terminal.console.print(text, soft_wrap=True)
    terminal.console.print(text, style="red", soft_wrap=True)
    terminal.console.print(terminal.styled((text, "yellow"), ":", text), soft_wrap=True)
    assert printed.getvalue() == f"{shown}\n{shown}\n{shown}:{shown}\n"


@pytest.mark.parametrize("text", [BRACKETS, CONTROL])
def test_a_step_may_have_any_name(printed: io.StringIO, text: str) -> None:
    with step(text):
        pass
    with pytest.raises(KeyError), step(text):
        raise KeyError
    assert f"✗ {text if text is BRACKETS else ESCAPED}" in printed.getvalue()


async def test_a_reset_goes_on_after_an_error_of_the_runtime_with_brackets(
    printed: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []

    async def refuse(settings: Settings) -> None:
        raise WherryError(f"pods cannot be removed: {BRACKETS}")

    async def stop(settings: Settings) -> None: ...

    async def clean(settings: Settings) -> None:
        done.append("network")

    monkeypatch.setattr(daemons, "stop", stop)
    monkeypatch.setattr(reset, "remove_pods", refuse)
    monkeypatch.setattr(reset, "_end_processes", lambda settings: done.append("processes"))
    monkeypatch.setattr(reset, "_clean_network", clean)
    monkeypatch.setattr(reset, "_unmount", lambda settings: None)
    monkeypatch.setattr(reset, "_remove_cgroups", stop)
    monkeypatch.setattr(reset, "_remove_files", lambda settings, keep_data: done.append("files"))
    await reset.reset(Settings(prefix=str(tmp_path)))
    assert done == ["processes", "network", "files"]
    assert BRACKETS in printed.getvalue()


def test_findings_may_contain_brackets(printed: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding("error", BRACKETS, BRACKETS)]
    monkeypatch.setattr(check, "findings", lambda settings, running: found)
    with pytest.raises(WherryError):
        check.require(Settings(), running=False)
    assert printed.getvalue() == f"  {BRACKETS}: {BRACKETS}\n"


def test_errors_that_end_a_command_are_escaped(printed: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise WherryError(f"node has the addresses {CONTROL}")

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr(sys, "argv", ["wherry", "join"])
    with pytest.raises(SystemExit):
        main.main()
    assert printed.getvalue() == f"wherry: node has the addresses {ESCAPED}\n"


def test_lines_are_wrapped_on_a_terminal_only() -> None:
    pipe, screen = io.StringIO(), io.StringIO()
    for text in ("one two three", terminal.styled("one two three")):
        terminal.PlainConsole(file=pipe, width=8).print(text)
    terminal.PlainConsole(file=screen, width=8, force_terminal=True, no_color=True).print("one two three")
    assert pipe.getvalue() == "one two three\n" * 2
    assert [line.strip() for line in screen.getvalue().splitlines()] == ["one two", "three"]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_line_of_a_terminal_ends_within_a_command_or_a_word(width: int) -> None:
    path = "/" + "p" * 30
    text = f"  pods fail: `wherry bundle load FILE` loads them from {path}, or set a `mirror`\n\nand `unpaired one"
    screen = io.StringIO()
    made = terminal.PlainConsole(file=screen, width=width, force_terminal=True, no_color=True)
    for printed in (text, terminal.styled(("  pods", "red"), text[6:])):
        made.print(printed)
        lines = screen.getvalue().splitlines()
        screen.seek(0)
        screen.truncate()
        assert " ".join(text.split()) == " ".join(" ".join(lines).split())
        assert "`wherry bundle load FILE`" in "\n".join(lines) and path in "\n".join(lines)
        assert all(len(line) <= max(width, 34) for line in lines) and lines.count("") == 1
        assert all(line.startswith("  ") for line in lines[: lines.index("")])


def test_no_other_console_and_no_markup_is_used() -> None:
    for file in Path(terminal.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text())
        for each in ast.walk(tree):
            name = getattr(each, "attr", getattr(each, "id", ""))
            assert name not in ("Console", "from_markup") or file.name in ("progress.py", "terminal.py"), file
            assert not (isinstance(each, ast.keyword) and each.arg == "markup") or file.name == "terminal.py", file
            assert not (isinstance(each, ast.Constant) and isinstance(each.value, str) and "[/]" in each.value), file


def test_a_question_that_nobody_answers_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(WherryError, match=r"nobody answered the question: --yes \(-y\) answers it"):
        terminal.confirmed("Remove 1 image?")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert terminal.confirmed("Remove 1 image?")


def test_a_file_system_without_room_for_files_is_named_as_such() -> None:
    with pytest.raises(WherryError, match=r"^/proc is a file system without room for files: choose another folder$"):
        disk_space.require_room(Path("/proc"), 1)
