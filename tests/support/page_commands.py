"""Commands in documents: lines of blocks and spans in backticks.

Documents have three places for commands: blocks that are indented by four spaces (each line is a command, except for comments),
the lines after `$ ` of ```console blocks, and spans in backticks whose first word is a program. All cells of a table's column
"command" are of the third kind, whatever their first word is. Other text of several lines is in fences of another language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^( *)```(\w*).*?\n(.*?)^\1```", re.M | re.S)
_SPAN = re.compile(r"(?<!`)(``?)(?!`)(.+?)(?<!`)\1(?!`)")
_DOLLAR = re.compile(r"^\$ ")


@dataclass(frozen=True)
class Line:
    """A command line of a document; `whole` if nothing of it may be left out, as in a block."""

    page: str
    number: int
    text: str
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.text}"


def documents() -> list[Path]:
    """Return all documents of the repository, except the release notes."""
    found = (path for path in ROOT.rglob("*.md") if not _hidden(path.relative_to(ROOT)))
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def _hidden(path: Path) -> bool:
    return any(part[0] == "." or part in ("build", "cache", "dist") for part in path.parts)


def lines(page: str, text: str, programs: frozenset[str]) -> list[Line]:
    """Return the command lines of a document in their order; `programs` are the first words of spans that are commands."""
    found = [*_console(page, text), *_indented(page, text), *_spans(page, text, programs)]
    return sorted(found, key=lambda line: line.number)


def _console(page: str, text: str) -> Iterator[Line]:
    for block in _FENCE.finditer(text):
        if block[2] in ("console", "sh", "bash", "shell"):
            start = text.count("\n", 0, block.start(3)) + 1
            body = block[3].splitlines()
            shown = [
                (start + at, _DOLLAR.sub("", line)) for at, line in enumerate(body) if _is_typed(body, at, block[2])
            ]
            yield from _joined(page, shown)


def _is_typed(body: list[str], at: int, language: str) -> bool:
    """Return whether a line of a block is typed, not printed: after `$ `, or the rest of such a line."""
    if language != "console" or body[at].startswith("$ "):
        return True
    return at > 0 and body[at - 1].endswith("\\") and _is_typed(body, at - 1, language)


def _joined(page: str, shown: list[tuple[int, str]]) -> Iterator[Line]:
    """Yield lines, with what a backslash continues."""
    number, command = 0, ""
    for each, text in shown:
        number = number if command else each
        command += text.strip()
        if command.endswith("\\"):
            command = command[:-1].rstrip() + " "
        elif command:
            yield Line(page, number, command, whole=True)
            command = ""
    assert not command, f"{page}:{number}: nothing follows the backslash"


def _indented(page: str, text: str) -> Iterator[Line]:
    shown = []
    for number, line in enumerate(_without_fences(text).splitlines(), 1):
        if line.startswith("    ") and not line.strip().startswith("#"):
            shown.append((number, line))
    yield from _joined(page, shown)


def _without_fences(text: str) -> str:
    return _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


def _spans(page: str, text: str, programs: frozenset[str]) -> Iterator[Line]:
    columns: list[str] = []
    for number, line in enumerate(_without_fences(text).splitlines(), 1):
        if not line.startswith("|"):
            columns = []
            if not line.startswith("    "):
                yield from (Line(page, number, span, whole=False) for span in _commands(line, programs))
            continue
        cells = [cell.strip() for cell in re.split(r" \| ", line.strip().removeprefix("| ").removesuffix(" |"))]
        columns = columns or cells
        for name, cell in zip(columns, cells, strict=False):
            found = (span for _, span in _SPAN.findall(cell)) if name == "command" else _commands(cell, programs)
            yield from (Line(page, number, span.strip(), whole=False) for span in found)


def _commands(text: str, programs: frozenset[str]) -> Iterator[str]:
    for _, span in _SPAN.findall(text):
        words = span.split()
        if len(words) > 1 and words[0] in programs and "->" not in words:
            yield span.strip()
