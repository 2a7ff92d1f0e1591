"""Errors of the command, each one sentence with its fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube.log_lines import escaped

LONGEST_VALUE = 200
"""Characters of a wrong value that a message contains."""


class WherryError(Exception):
    """Shown as it is, without a traceback; the command ends with its status."""

    status = 1


class UsageError(WherryError):
    """The command line is wrong: nothing was done."""

    status = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """Reason for which the value of an option is refused; `others` are options that it contradicts.

    The text names the option as it is on the command line. It begins with the option, unless the fix is another one.
    """

    option: str
    text: str
    others: tuple[str, ...] = ()


class OptionError(UsageError):
    """Options have wrong values; all of them are named."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.text for problem in self.problems))


def wrong(option: str, value: object, why: str, *others: str) -> Problem:
    """Return the problem of an option with a value: `--max-pods 0: it is at least 1`."""
    text = escaped(str(value))
    if len(text) > LONGEST_VALUE:
        text = text[:LONGEST_VALUE] + "…"
    return Problem(option, f"--{option} {text}: {why}", others)
