"""Small changes of nf_tables by libnftables in this process, for which no program is started.

In the table of 5 000 Services a change takes the library 1 ms of CPU time. The program `nft` takes 3 ms more for its start, and
several switches between processes, each of which waits for a CPU. All calls are made in one thread of each event loop:
the kernel makes a change wait for another program's transaction, and the hop to the thread costs less than 0.1 ms.

Texts above `LARGEST` go to the program, and so do listings: their memory (180 MiB for a listing of 30 000 Services) goes with
it, and if it takes too long it is killed. What the library refuses is given to the program too, so errors are always
the program's: the library quotes the wrong line.

A context's netlink socket belongs to the network namespace of the thread that opened it, here that of the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from netproxy.netlink import nf_tables_generation

log = logging.getLogger(__name__)

NAME = "libnftables.so.1"
"""A dependency of the program (Debian: libnftables1, of the package nftables)."""
LARGEST = 16 << 10
"""Characters of a text up to which the library applies it: 170 Services of one endpoint. It keeps 100 bytes for each."""
BUSY_SECONDS = 1.0
"""Time that a text waits for one of another table before it is left to the program."""
END_SECONDS = 10.0
"""Time that a cancelled call is waited for, as for a killed program."""
SLOW_SECONDS, PROGRAM_SECONDS = 0.05, 600.0
"""CPU time of a text above which the program gets all others for so long. At each change the library reads all chains, and
the address ranges of all tables (of policies), and keeps them: 1 KiB for each."""
_ONE_CALL = threading.Lock()
"""The library keeps names of interfaces and protocols in global variables."""


@functools.cache
def load(name: str) -> ctypes.CDLL:
    """Load the library; OSError or AttributeError if it is not there or lacks a function."""
    functions = ctypes.CDLL(name)
    context = ctypes.c_void_p
    functions.nft_ctx_new.restype, functions.nft_ctx_new.argtypes = context, [ctypes.c_uint32]
    functions.nft_ctx_free.restype, functions.nft_ctx_free.argtypes = None, [context]
    for buffer in (functions.nft_ctx_buffer_output, functions.nft_ctx_buffer_error):
        buffer.argtypes = [context]
    for read in (functions.nft_ctx_get_output_buffer, functions.nft_ctx_get_error_buffer):
        read.restype, read.argtypes = ctypes.c_char_p, [context]
    functions.nft_run_cmd_from_buffer.argtypes = [context, ctypes.c_char_p]
    return functions


class Context:
    """A context of the library in the network namespace of the thread that makes it. All methods block."""

    def __init__(self, functions: Any) -> None:
        """Raise OSError if there can be no context."""
        # The library ends the process if it gets no netlink socket.
        if not nf_tables_generation():
            raise OSError("nf_tables does not answer")
        self._functions, self._handle = functions, functions.nft_ctx_new(0)
        if not self._handle:
            raise OSError("no context")
        if functions.nft_ctx_buffer_output(self._handle) or functions.nft_ctx_buffer_error(self._handle):
            self.close()
            raise OSError("no buffers for output")

    def run(self, text: str) -> str:
        """Apply a text in one transaction; return why it was refused, "" if it was not."""
        with _ONE_CALL:
            status = self._functions.nft_run_cmd_from_buffer(self._handle, text.encode())
            self._functions.nft_ctx_get_output_buffer(self._handle)  # each empties its buffer
            errors: bytes = self._functions.nft_ctx_get_error_buffer(self._handle) or b""
        return (errors.decode(errors="replace").strip() or f"status {status}") if status else ""

    def close(self) -> None:
        """Free the context."""
        self._functions.nft_ctx_free(self._handle)


class _Call:
    """A text, and the result once the thread has applied it."""

    def __init__(self, text: str) -> None:
        self.text, self._loop = text, asyncio.get_running_loop()
        self.result: asyncio.Future[str | None] = self._loop.create_future()

    def end(self, result: str | None) -> None:
        """Report the result to the event loop, which may be closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.result.set_result, result)


class Session:
    """One event loop's thread and context. The thread ends with the session."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._current: Callable[[], asyncio.Future[str | None] | None] = lambda: None
        """Returns the result of the last call, unless it is gone: a session may not keep its event loop."""
        threading.Thread(target=_Work(NAME).run, args=(self._calls,), name="libnftables", daemon=True).start()
        weakref.finalize(self, self._calls.put, None).atexit = False

    async def apply(self, text: str, seconds: float) -> str | None:
        """Apply a text as `apply` of this module does."""
        if not await self._is_free(BUSY_SECONDS):
            return None
        call = _Call(text)
        self._current = weakref.ref(call.result)
        self._calls.put(call)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(call.result)
        except asyncio.CancelledError:
            await asyncio.wait([call.result], timeout=END_SECONDS)
            raise

    async def _is_free(self, seconds: float) -> bool:
        """Wait until the thread has returned from all calls, also abandoned ones; return False if it has not in time."""
        end = time.monotonic() + seconds
        while (running := self._current()) is not None and not running.done():
            if time.monotonic() >= end:
                return False
            await asyncio.wait([running], timeout=end - time.monotonic())
        return True


class _Work:
    """The work of a session's thread. Loading the library and opening its context may block too, so it is done here."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._context: Context | None = None
        self._unused_until = float("-inf")
        self._logged = ""

    def run(self, calls: queue.SimpleQueue[_Call | None]) -> None:
        """Apply texts until None comes."""
        while (call := calls.get()) is not None:
            call.end(self._apply(call.text))
            del call  # and with it the event loop, which the session ends with
        self._close()

    def _apply(self, text: str) -> str | None:
        if time.monotonic() < self._unused_until:
            return None
        try:
            self._context = self._context or Context(load(self._name))
            began = time.thread_time()
            result = self._context.run(text)
        except Exception as error:
            if str(error) != self._logged:
                self._logged = str(error)
                log.warning("each change of nf_tables starts nft, because libnftables cannot be used: %s", error)
            return None
        if time.thread_time() - began > SLOW_SECONDS:
            self._unused_until = time.monotonic() + PROGRAM_SECONDS
            self._close()
        return result

    def _close(self) -> None:
        """Free the context, and return to the system what it held."""
        if self._context is not None:
            self._context.close()
            self._context = None
            with contextlib.suppress(AttributeError):  # not in every C library
                ctypes.CDLL(None).malloc_trim(0)


_sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Session] = weakref.WeakKeyDictionary()


async def apply(text: str, seconds: float) -> str | None:
    """Apply a text in one transaction; return "" if it is in force, why it was refused, or None if it was not tried.

    Raise TimeoutError if there is no result in time: the kernel may still accept the text. Until then no other is tried.
    """
    if len(text) > LARGEST or "\0" in text:
        return None
    loop = asyncio.get_running_loop()
    session = _sessions.get(loop)
    if session is None:
        session = _sessions[loop] = Session()
    return await session.apply(text, seconds)
