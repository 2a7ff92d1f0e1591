"""Threads that call functions in round robin over those who want them called.

Each may have several waiting, which the threads take without a round of the event loop between two. So a limit on how many
each has waiting is no limit on how long others wait: in one queue, these would wait for all of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

_Call = tuple[Callable[[], None], Future[None]]


class FairThreads:
    """So many threads."""

    def __init__(self, most: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[_Call]] = {}
        """By owner, in the order of their turns."""

    def submit(self, owner: Hashable, function: Callable[[], None]) -> Future[None]:
        """Have a function called in a thread when it is the owner's turn."""
        future = Future[None]()
        with self._lock:
            self._waiting.setdefault(owner, deque()).append((function, future))
        self._executor.submit(self._call_next)  # as often as there are calls, each of which takes what is next then
        return future

    def _call_next(self) -> None:
        with self._lock:
            owner = next(iter(self._waiting))
            calls = self._waiting.pop(owner)
            function, future = calls.popleft()
            if calls:
                self._waiting[owner] = calls  # behind everybody else
        if not future.set_running_or_notify_cancel():
            return
        try:
            function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)
