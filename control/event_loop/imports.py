"""Imports in a thread, one after another, while the event loop serves.

The controllers' modules, the scheduler's and those of the finite routes take half a second together. Imported by the event
loop they would block the first requests after a start, and with them /readyz. Clients that reconnect to a server are
served before: the imports begin a moment later, those that a request waits for at once.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from control.event_loop.switch_interval import switching

T = TypeVar("T")

HEAD_START_SECONDS = 0.1
"""Time for the requests that have waited for the start, before modules are imported that none of them needs."""
_thread = ThreadPoolExecutor(1, "imports")


async def run(work: Callable[[], T]) -> T:
    """Return what `work` returns, which imports modules; called in the thread."""
    return await asyncio.get_running_loop().run_in_executor(_thread, partial(switching, work))


def imported(name: str) -> bool:
    """Return whether a module is imported completely: `sys.modules` has it as soon as its import begins.

    An `import` statement in the event loop waits for the thread that is importing the module.
    """
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


async def ensure(*names: str) -> None:
    """Import modules that are not imported yet; a later `import` statement in the event loop then costs nothing."""
    if not all(map(imported, names)):
        await asyncio.sleep(HEAD_START_SECONDS)
    for name in names:
        await ensure_now(name)


async def ensure_now(name: str) -> None:
    """Import a module as `ensure` does, without its delay."""
    if not imported(name):
        await run(partial(importlib.import_module, name))
