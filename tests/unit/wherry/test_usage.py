"""Wrong values of arguments and options: refused before anything is done, in the command's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from wherry.main import app

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
