"""Tell the person at the terminal what is being done, and how long it took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Show a step while it is being done and leave one line about it."""
    began = time.monotonic()
    try:
        if console.is_terminal:
            with console.status(what):
                yield
        else:
            yield
    except BaseException:
        console.print(f"[red]✗[/] {what}")
        raise
    console.print(f"[green]✓[/] {what} [dim]({time.monotonic() - began:.1f} s)[/]")
