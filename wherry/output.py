"""Output of commands that list: a table of plain columns, or JSON or YAML. Nothing is cut, on a terminal or in a pipe."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kube.log_lines import escaped
from wherry.errors import UsageError

FORMATS = ("table", "wide", "json", "yaml")
GAP = 3
"""Spaces between columns, as kubectl has."""
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table; a `wide` one is shown with `-o wide` only."""

    heading: str
    text: Callable[[Row], str]
    wide: bool = False


def check(output: str, known: Sequence[str] = FORMATS) -> None:
    """Raise UsageError for an unknown format, before anything is done."""
    if output not in known:
        raise UsageError(f"-o {output}: use {', '.join(known[:-1])} or {known[-1]}")


def show(rows: Sequence[Row], columns: Sequence[Column[Row]], output: str, data: Callable[[Row], Any]) -> None:
    """Print rows in a format; `data` returns a row as JSON data."""
    if output in ("json", "yaml"):
        print(dumped([data(row) for row in rows], output), end="")
        return
    for line in table(columns, rows, wide=output == "wide"):
        print(line)


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], *, wide: bool = False) -> list[str]:
    """Return the lines of a table, without spaces at their ends; nodes and pods write some of its texts."""
    shown = [column for column in columns if wide or not column.wide]
    lines = [[column.heading for column in shown], *([escaped(column.text(row)) for column in shown] for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(shown))]
    return [
        "".join(text.ljust(width + GAP) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    ]


def dumped(data: Any, output: str) -> str:
    """Return data as JSON or YAML text that ends with a line break."""
    if output == "json":
        return json.dumps(data, indent=2) + "\n"
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, default_flow_style=False)
    return text


def camel_case(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass under the names that JSON data have; a `dict_factory` of dataclasses.asdict."""

    def key(name: str) -> str:
        first, *others = name.split("_")
        return first + "".join(map(str.capitalize, others))

    return {key(name): value for name, value in items}


def size(number: int) -> str:
    """Return a number of bytes as people read it: 512 B, 1.5 KiB, 23 MiB."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
