"""Wrong values of arguments and options: refused before anything is done, in the command's own words."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from wherry.main import app, main
from wherry.terminal import PlainConsole

OF_LIBRARIES = re.compile(
    r"Input should|unable to parse|pydantic|Traceback|validator|type=|Expected `|at `\$", re.IGNORECASE
)
"""Texts by which the libraries that read values explain an error to programmers."""


def numbers(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the words and the option of each number, and of each truth value, that a command has."""
    command = command or typer.main.get_command(app)
    for name, inner in getattr(command, "commands", {}).items():
        yield from numbers(inner, (*words, name))
    for param in command.params:
        if "int" in str(param.type_descriptor.annotation):
            yield words, max(param.opts, key=len)


NUMBERS = sorted(numbers())


def test_commands_have_numbers() -> None:
    assert (("up",), "--max-pods") in NUMBERS and (("logs",), "--tail") in NUMBERS and len(NUMBERS) > 20


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(NUMBERS),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20).filter(
        lambda text: re.fullmatch(r"\s*[+-]?\d+(_\d+)*(\.0*)?\s*", text) is None
    ),
)
def test_what_is_no_number_is_refused_in_one_sentence(option: tuple[tuple[str, ...], str], text: str) -> None:
    words, name = option
    found = CliRunner().invoke(app, [*words, f"{name}={text}"])
    assert found.exit_code == 2
    assert "is not a whole number" in found.output.splitlines()[-1] and name in found.output
    assert not OF_LIBRARIES.search(found.output)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["up", "--max-pods", "foo"], "Invalid value for '--max-pods': 'foo' is not a whole number"),
        (["dev", "--nodes", "-4"], "Invalid value for '--nodes': '-4' is not a whole number from 0 to 5000"),
        (["dev", "--port", "65536"], "Invalid value for '--port': '65536' is not a whole number from 0 to 65535"),
        (["logs", "-n", "-1"], "Invalid value for '--tail' / '-n': '-1' is not a whole number of at least 0"),
    ],
)
def test_a_number_out_of_its_range_is_named_with_the_range(words: list[str], problem: str) -> None:
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 2 and problem in found.output


def status(*words: str) -> tuple[int, str]:
    """Return the status of a command that is run as a program would, and what it prints on standard error."""
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stderr(printed),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", ["wherry", *words])
        patch.setattr("wherry.main.errors", PlainConsole(file=printed, width=80))
        main()
    return int(ended.value.code or 0), printed.getvalue()


def with_format(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the words of each command that has `-o`."""
    command = command or typer.main.get_command(app)
    for name, inner in getattr(command, "commands", {}).items():
        yield from with_format(inner, (*words, name))
    if any("-o" in param.opts for param in command.params):
        yield words


@pytest.mark.parametrize("words", sorted(with_format()), ids=" ".join)
def test_an_unknown_format_is_an_error_of_the_command_line(words: tuple[str, ...], tmp_path: Path) -> None:
    code, text = status(*words, "-o", "banana", "--prefix", str(tmp_path))
    assert code == 2 and text.startswith("wherry: -o banana: ") and text.count("\n") == 1 and "json" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("completion", "tcsh"), 2, "wherry: there is no completion for tcsh: use bash, zsh or fish"),
        (("help", "tokn"), 2, "wherry: there is no command tokn: `wherry help` lists them"),
        (("status", "--watch", "-o", "json"), 2, "wherry: -o json: --watch shows text and wide only"),
        (("up", "--foo"), 2, "No such option: --foo"),
        (("token",), 2, "Commands:"),
        (("nonsense",), 2, "No such command 'nonsense'"),
        (("status",), 1, "wherry: there is no cluster on this machine"),
        (("config", "validate"), 1, "wherry: there is no file"),
    ],
)
def test_the_status_is_that_of_the_manual(words: tuple[str, ...], code: int, problem: str, tmp_path: Path) -> None:
    prefix = () if words[0] in ("completion", "help", "token", "nonsense") else ("--prefix", str(tmp_path))
    found = status(*words, *prefix)
    assert found[0] == code and problem in found[1]


def test_a_value_that_up_refuses_is_an_error_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("wherry.addresses.own_address", lambda: "192.0.2.1")
    code, text = status("up", "--prefix", str(tmp_path), "--proxy", "foo")
    assert (code, text) == (2, "wherry: --proxy foo: it is one of wherry, upstream and none\n")
    assert not list(tmp_path.iterdir())
