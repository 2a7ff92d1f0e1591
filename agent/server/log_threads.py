"""Threads that read containers' logs: a few, apart from those of the agent's other files, in round robin over namespaces.

In the shared pool hundreds of readers would delay the file work of pods that start, and many threads that search logs would
delay the event loop, with which they share the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from kube.serving.fair_queue import Slots

THREADS = 2
P = ParamSpec("P")
T = TypeVar("T")


class InThread(Protocol):
    """Calls a function in a thread."""

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class LogThreads:
    """The threads; each call holds one for a short time."""

    def __init__(self) -> None:
        self._slots = Slots(THREADS)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="logs")

    def of(self, namespace: str) -> InThread:
        """Return the function that calls others for the logs of a namespace."""

        async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
            await self._slots.acquire(namespace)
            call = asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))
            call.add_done_callback(lambda _: self._slots.release())
            try:
                return await asyncio.shield(call)
            except asyncio.CancelledError:
                await asyncio.wait((call,))  # unless cancelled again: log_descriptors.py closes what it uses
                raise

        return in_thread
