"""Completion of the arguments of `wherry kubectl`, which kubectl's own `__complete` returns.

Only names of plain characters are offered: zsh evaluates what it gets, and names of some objects may have almost any character.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from wherry import kubectl
from wherry.errors import WherryError
from wherry.layout import Layout

SECONDS = 5.0
"""Time that kubectl has, with a server that may not respond."""
MOST = 10_000
"""Values that are offered at most."""
ERROR, OF_FILES = 1, 8 | 16
"""Bits of the directive in the last line (cobra's ShellCompDirective): an error; the values are patterns of files."""
PLAIN = re.compile(r"[A-Za-z0-9._:/=@%+,~-]+")
UNUSUAL = re.compile(r"[^A-Za-z0-9 .,;:/()<>=+_-]")


@dataclass(frozen=True, slots=True)
class Item:
    """A value that a shell offers, with its help."""

    value: str
    help: str = ""
    type: str = "plain"


class KubectlCommand(TyperCommand):
    """A command whose arguments kubectl completes."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the values for an incomplete argument."""
        admin = Layout(Path(ctx.params.get("prefix") or "/")).admin_kubeconfig
        return complete([*ctx.args, incomplete], admin, os.environ)


def complete(arguments: Sequence[str], admin: Path, given: Mapping[str, str]) -> list[Item]:
    """Return the values that kubectl offers for the last argument; none if it cannot be run or does not respond."""
    try:
        program = kubectl.program()
        try:
            variables = kubectl.environment(arguments, admin, given)
        except WherryError:  # there is no cluster: commands and options can be completed
            variables = {**given, "KUBECONFIG": os.devnull}
        done = subprocess.run(  # noqa: S603 - there is no shell
            [program, "__complete", *arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (WherryError, OSError, subprocess.TimeoutExpired):
        return []
    return items(done.stdout.decode(errors="replace"))


def items(text: str) -> list[Item]:
    """Return the values in the output of `__complete`: one a line with a tab before its help, then the directive."""
    *lines, last = text.rstrip("\n").split("\n")
    number = last.removeprefix(":")
    if not last.startswith(":") or not number.isdecimal() or int(number) & (ERROR | OF_FILES):
        return []
    found = []
    for line in lines[:MOST]:
        value, _, help = line.partition("\t")
        if PLAIN.fullmatch(value) and not value.startswith("_activeHelp_"):
            found.append(Item(value, UNUSUAL.sub("", help)))
    return found
