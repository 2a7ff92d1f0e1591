"""Output for the person at the terminal: texts as they are.

Texts contain what others wrote: errors of the runtime and of servers, names of images, log lines. In markup a bracket of such a
text would be a style, or an error that ends the command half-way; a control character would command the terminal.
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from kube.log_lines import escaped
from wherry.errors import WherryError
from wherry.wrapping import breaks


class PlainConsole(Console):
    """A console that prints strings without markup and emoji codes, and escapes what cannot be printed except line breaks.

    Lines are broken between words on a terminal only, and never in a word or in backquotes: in a pipe or a log they stay whole.
    So commands and paths in them can be copied. With `soft_wrap` they stay whole on a terminal too.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        if soft_wrap is None:
            soft_wrap = not self.is_terminal
            if self.is_terminal and all(isinstance(each, str | Text) for each in objects):  # progress prints others
                objects, soft_wrap = tuple(map(self._broken, objects)), True
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def _broken(self, text: str | Text) -> Text:
        """Return a text with line breaks at the width of the terminal; lines keep their indentation."""
        lines: list[Text] = []
        for line in (Text(plain(text)) if isinstance(text, str) else text).split("\n", allow_blank=True):
            first, *others = line.divide(breaks(line.plain, self.width))
            indent = " " * (len(line.plain) - len(line.plain.lstrip()))
            lines += [first, *(Text.assemble(indent, other) for other in others)]
        for line in lines:
            line.rstrip()
        return Text("\n").join(lines)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(plain(text), **options)


console = PlainConsole()
errors = PlainConsole(stderr=True)


def confirmed(question: str) -> bool:
    """Ask the person at the terminal, or who writes to the standard input; raises WherryError if nobody answers."""
    try:
        return typer.confirm(question)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        print()
        raise WherryError("nobody answered the question: --yes (-y) answers it") from None


def plain(text: str) -> str:
    """Escape what cannot be printed except line breaks."""
    return "\n".join(map(escaped, text.split("\n")))


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return a text of parts, each a string or (string, style)."""
    return Text.assemble(*(plain(part) if isinstance(part, str) else (plain(part[0]), part[1]) for part in parts))
