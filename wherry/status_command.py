"""Prints the status of the machine and the cluster, once or again and again."""

from __future__ import annotations

import asyncio
import sys
import time

import typer

from kube.clock import SYSTEM
from wherry import output, status, status_text
from wherry.errors import UsageError
from wherry.settings import Settings
from wherry.terminal import console

FORMATS = ("text", "wide", "json", "yaml")
SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"
"""Sequence that clears a terminal."""
INTERRUPTED = 130
"""Exit status of a command that SIGINT ended, as a shell reports it."""


def check(format: str, *, watch: bool) -> None:
    """Raise UsageError for an unknown format, or one that is not watched."""
    output.check(format, FORMATS)
    if watch and format not in ("text", "wide"):
        raise UsageError(f"-o {format}: --watch shows text and wide only")


def show(settings: Settings, format: str, *, watch: bool = False) -> bool:
    """Print the status and return whether all is healthy; with `watch`, until interrupted."""
    check(format, watch=watch)
    try:
        while True:
            found = asyncio.run(status.collect(settings, SYSTEM.now()))
            if watch and sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            _print(found, format)
            if not watch:
                return found.healthy
            time.sleep(SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _print(found: status.Status, format: str) -> None:
    if format in ("json", "yaml"):
        print(output.dumped(status.as_data(found), format), end="", flush=True)
        return
    for line in status_text.lines(found, wide=format == "wide"):
        console.print(line, soft_wrap=True if isinstance(line, status_text.TableLine) else None)
    sys.stdout.flush()
