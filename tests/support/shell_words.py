"""Words of a shell line: commands with their arguments, substitutions and redirections, without running anything.

A subset of POSIX' grammar that documents need. What it does not have (here-documents, functions, loops) is an error, so that no
part of a line passes unread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPERATORS = re.compile(r"&&|\|\||;|\||&|\(|\)|\n")
_REDIRECTION = re.compile(r"\d*(>>|>&|>|<)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
PLACE = "\N{HORIZONTAL ELLIPSIS}"
"""The value of a substitution."""


class Unreadable(Exception):
    """The line is not in the subset, or not shell at all."""


@dataclass
class Command:
    """One program with its arguments; `writes` are the files that redirections write."""

    words: list[str] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)


def parse(line: str) -> list[Command]:
    """Return the commands of a line in their order, those of substitutions before the one that uses them."""
    found: list[Command] = []
    _list(line, 0, found, closing="")
    if not found:
        raise Unreadable("there is no command")
    return found


def _list(line: str, at: int, found: list[Command], closing: str) -> int:
    """Parse commands up to `closing`; return the position after it."""
    command, target, depth = Command(), "", 0
    while True:
        while at < len(line) and line[at] in " \t":
            at += 1
        ends = at >= len(line) or line[at] == "#"
        operator = None if ends else _OPERATORS.match(line, at)
        if ends or operator:
            if target:
                raise Unreadable("nothing follows the redirection")
            if command.words or command.assigned:
                found.append(command)
                command = Command()
            if ends:
                if closing or depth:
                    raise Unreadable(f"there is no {closing or ')'}")
                return at
            assert operator is not None
            at = operator.end()
            if operator[0] == ")":
                if not depth:
                    if closing == ")":
                        return at
                    raise Unreadable("there is no (")
                depth -= 1
            depth += operator[0] == "("
            continue
        if redirection := _REDIRECTION.match(line, at):
            target, at = redirection[1], redirection.end()
            continue
        word, at = _word(line, at, found)
        _place(command, word, target)
        target = ""


def _place(command: Command, word: str, target: str) -> None:
    if target:
        if target in (">", ">>"):
            command.writes.append(word)
    elif not command.words and word in ("{", "}"):
        return
    elif not command.words and _ASSIGNMENT.match(word):
        command.assigned.append(word)
    else:
        command.words.append(word)


def _word(line: str, at: int, found: list[Command]) -> tuple[str, int]:
    text = ""
    while at < len(line) and line[at] not in " \t;&|()<>":
        character = line[at]
        if character == "'":
            end = line.find("'", at + 1)
            if end < 0:
                raise Unreadable("a quotation does not end")
            text, at = text + line[at + 1 : end], end + 1
        elif character == '"':
            more, at = _quoted(line, at + 1, found)
            text += more
        elif character == "\\":
            text, at = text + line[at + 1 : at + 2], at + 2
        elif character == "`":
            raise Unreadable("use $() in place of `")
        elif line.startswith("$(", at):
            at = _list(line, at + 2, found, closing=")")
            text += PLACE
        else:
            text, at = text + character, at + 1
    return text, at


def _quoted(line: str, at: int, found: list[Command]) -> tuple[str, int]:
    text = ""
    while at < len(line):
        if line[at] == '"':
            return text, at + 1
        if line.startswith("$(", at):
            at = _list(line, at + 2, found, closing=")")
            text += PLACE
        elif line[at] == "\\" and line[at + 1 : at + 2] in tuple('"$\\'):
            text, at = text + line[at + 1], at + 2
        else:
            text, at = text + line[at], at + 1
    raise Unreadable("a quotation does not end")
