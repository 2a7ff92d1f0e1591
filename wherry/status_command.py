"""Prints the status of the machine and the cluster, once or again and again."""

from __future__ import annotations

import asyncio
import sys
import time

from kube.clock import SYSTEM
from kube.log_lines import escaped
from wherry import output, status
from wherry.errors import UsageError
from wherry.settings import Settings

FORMATS = ("text", "json", "yaml")
SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"
"""Sequence that clears a terminal."""


def check(format: str, *, watch: bool) -> None:
    """Raise UsageError for an unknown format, or one that is not watched."""
    output.check(format, FORMATS)
    if watch and format != "text":
        raise UsageError(f"-o {format}: --watch shows text only")


def show(settings: Settings, format: str, *, watch: bool = False) -> bool:
    """Print the status and return whether all is healthy; with `watch`, until interrupted."""
    check(format, watch=watch)
    try:
        while True:
            found = asyncio.run(status.collect(settings, SYSTEM.now()))
            if watch and format == "text" and sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            if format == "text":
                print("\n".join(map(escaped, status.lines(found))), flush=True)
            else:
                print(output.dumped(status.as_data(found), format), end="", flush=True)
            if not watch:
                return found.healthy
            time.sleep(SECONDS)
    except KeyboardInterrupt:
        return True
