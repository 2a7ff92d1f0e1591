"""Output for the person at the terminal: texts as they are.

Texts contain what others wrote: errors of the runtime and of servers, names of images, log lines. In markup a bracket of such a
text would be a style, or an error that ends the command half-way; a control character would command the terminal.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from kube.log_lines import escaped


class PlainConsole(Console):
    """A console that prints strings without markup and emoji codes, and escapes what cannot be printed except line breaks.

    Lines are wrapped at words on a terminal only: in a pipe or a log they stay whole, so that commands in them can be copied.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        super().print(*objects, soft_wrap=not self.is_terminal if soft_wrap is None else soft_wrap, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(plain(text), **options)


console = PlainConsole()
errors = PlainConsole(stderr=True)


def plain(text: str) -> str:
    """Escape what cannot be printed except line breaks."""
    return "\n".join(map(escaped, text.split("\n")))


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return a text of parts, each a string or (string, style)."""
    return Text.assemble(*(plain(part) if isinstance(part, str) else (plain(part[0]), part[1]) for part in parts))
