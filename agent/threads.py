"""Threads of the agent: a pool for its own files, and one thread a call for file systems that may never answer.

A call to a file system whose server is gone (NFS, a hung driver's mount) blocks its thread for as long as that lasts. In a
pool a few such calls would hold up the files of all pods. So what touches a volume runs in a daemon thread of its own:
calls with the same key (a pod's, a volume's) one after another, a look at the same key only once at a time, and no more than
`LIMIT` in all.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from agent.usage.exposition import Text

T = TypeVar("T")
FILES = 16
"""Threads for the agent's own files: a disk answers, however slowly."""
LIMIT = 128
"""Calls to volumes that may be under way at once."""

_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[Any]]] = WeakKeyDictionary()


def _calls() -> dict[str, asyncio.Future[Any]]:
    return _running.setdefault(asyncio.get_running_loop(), {})


async def call(key: str, function: Callable[..., T], *args: Any) -> T:
    """Return what a function returns that may block for ever, once earlier calls with the same key have returned.

    Cancelling the wait does not end the thread. Raise OSError (EAGAIN) where too many calls do not return.
    """
    running = _calls()
    while (earlier := running.get(key)) is not None:
        await asyncio.wait((earlier,))
    result: T = await asyncio.shield(_start(running, key, function, *args))
    return result


async def look(key: str, function: Callable[..., T], *args: Any) -> T:
    """Return what a function returns that only reads; a look with the same key that is under way serves both."""
    running = _calls()
    under_way = running.get(key)
    result: T = await asyncio.shield(_start(running, key, function, *args) if under_way is None else under_way)
    return result


def under_way(key: str) -> bool:
    """Tell whether a call with a key has not returned yet."""
    return key in _calls()


def _start(
    running: dict[str, asyncio.Future[Any]], key: str, function: Callable[..., T], *args: Any
) -> asyncio.Future[T]:
    if len(running) >= LIMIT:
        raise OSError(errno.EAGAIN, f"{LIMIT} calls to file systems have not returned yet")
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        running.pop(key, None)
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)
            future.exception()  # whoever waited may have gone

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    running[key] = future
    threading.Thread(target=work, name=f"volume {key}", daemon=True).start()
    return future


class Threads:
    """The pool of this process's loop, and how full it and the calls to volumes are, for /metrics."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._volumes: dict[str, asyncio.Future[Any]] = {}

    def install(self) -> None:
        """Make the pool the running loop's default executor."""
        self._pool = ThreadPoolExecutor(FILES, thread_name_prefix="files")
        asyncio.get_running_loop().set_default_executor(self._pool)
        self._volumes = _calls()

    def write(self, text: Text) -> None:
        """Add the families to a text."""
        queued = self._pool._work_queue.qsize() if self._pool is not None else 0
        text.family(
            "wherry_file_pool_queued",
            "gauge",
            f"Number of pieces of file work that wait for one of the agent's {FILES} threads",
            [({}, float(queued), 0.0)],
        )
        text.family(
            "wherry_volume_calls",
            "gauge",
            f"Number of calls to volumes under way, of at most {LIMIT}: one that stays belongs to a hung file system",
            [({}, float(len(self._volumes)), 0.0)],
        )
