"""`wherry dev --replay`: an API server that shows the history of a test, and commands on stdin that step through it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from wherry.dev_kubeconfig import written
from wherry.terminal import console

if TYPE_CHECKING:
    from wherry.testing.history.commands import Commands

LONGEST_LINE = 4096


async def replay(path: Path, kubeconfig: Path | None, port: int, stop: asyncio.Event) -> None:
    """Serve a history until `stop` is set or a command ends it. Raise ClusterError, WherryError."""
    from wherry.testing.history.commands import HELP, Commands
    from wherry.testing.history.history import History
    from wherry.testing.history.replay import Replay

    history = await asyncio.to_thread(History.load, path)
    async with Replay(history, port=port) as server:
        with written(server.kubeconfig_text, kubeconfig or server.folder / "kubeconfig") as found:
            commands = Commands(server, _show)
            _show(f"{history.test}: {len(history.changes)} changes")
            _show(f"{server.url} with the objects of a revision; Ctrl-C ends it")
            _show(f"export KUBECONFIG={found}")
            _show(HELP)
            _show(commands.position())
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(_execute(commands, stop))
                await stop.wait()
                reading.cancel()


def _show(line: str) -> None:
    console.print(line, soft_wrap=True)


async def _execute(commands: Commands, stop: asyncio.Event) -> None:
    async for line in _lines():
        if not await commands.execute(line):
            stop.set()
            return


async def _lines() -> AsyncIterator[str]:
    """Yield the lines of stdin; none if it is closed."""
    loop, rest = asyncio.get_running_loop(), b""
    while data := await _read(loop, sys.stdin.fileno()):
        *lines, rest = (rest + data)[-LONGEST_LINE:].split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")


async def _read(loop: asyncio.AbstractEventLoop, descriptor: int) -> bytes:
    """Return the next input; a thread that reads it could not be ended."""
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, ready.set_result, None)
    except PermissionError:  # a file is always ready
        return os.read(descriptor, LONGEST_LINE)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, LONGEST_LINE)
