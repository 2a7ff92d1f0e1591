"""Client of the helper process, which is started at the first job and stopped when it is idle.

It does one job at a time. A long job, or one that continues when nobody waits for it any more, ends with its process; the next
one has a new process. Until that is ready the job waits a quarter of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from kube.errors import StatusError

log = logging.getLogger(__name__)
JOB_SECONDS = 30.0
"""The longest that a job may take: everybody else's wait behind it. Where the machine is busy the helper has little of it."""
IDLE_SECONDS = 30.0
"""After so long without a job the process ends, and its 30 MB are given back."""
END_SECONDS = 5.0
"""The longest that others wait for a killed process, which may hang in the kernel."""
LENGTH = 8
_ROOT = str(Path(__file__).resolve().parents[2])


class HelperFailed(Exception):
    """The process could not be started, has ended, or found a fault in its own code."""


class HelperMissing(HelperFailed):
    """There is no process, and none can be started: the machine has no memory or no process numbers left."""


class Helper:
    """One helper process, for one event loop. Callers wait for each other: only one may `call` at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The running process, None if there is none."""
        return None if self._process is None else self._process.pid

    async def call(self, job: str, *args: Any) -> Any:
        """Return what a job of `jobs.py` returns; raises its StatusError, TimeoutError, HelperFailed."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            async with asyncio.timeout(JOB_SECONDS):
                value, refusal = await self._asked(msgspec.msgpack.encode([job, args]))
        except BaseException as error:
            await self.close()
            if isinstance(error, OSError | EOFError) and not isinstance(error, TimeoutError):
                log.warning("the helper for large objects has ended: %s", error)
                raise HelperFailed(f"the helper for large objects has ended: {error}") from error
            raise
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)
        if refusal is None:
            return value
        raise HelperFailed(refusal) if isinstance(refusal, str) else StatusError(*refusal)

    async def _asked(self, message: bytes) -> list[Any]:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await _started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(len(message).to_bytes(LENGTH, "big"))
        process.stdin.write(message)
        await process.stdin.drain()
        length = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
        found: list[Any] = msgspec.msgpack.decode(await process.stdout.readexactly(length))
        return found

    def _end(self) -> None:
        """Let the process end by itself: it has read all that there is."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    async def close(self) -> None:
        """End the process, whatever it does."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            log.error("the helper for large objects, process %d, does not end", process.pid)


async def _started() -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "control.server.helper",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": _ROOT},
        )
    except OSError as error:
        log.warning("the helper for large objects cannot be started: %s", error)
        raise HelperMissing(f"the helper for large objects cannot be started: {error}") from error
