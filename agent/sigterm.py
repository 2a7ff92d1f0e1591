"""Ends the agent on SIGTERM, and limits the time that it waits for runtime calls then.

Calls to the runtime that create or stop something are not cancelled with their caller (runtime.py), so that their result is
known. A runtime that hangs returns none: after `CALL_SECONDS` its connection is closed, which ends the calls. The next agent
finds what they did, since containers run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

from cri.client import Client
from kube.clock import Clock

log = logging.getLogger(__name__)

CALL_SECONDS = 10.0
"""Half of what the supervisor gives a daemon to end (wherry/supervisor.py)."""


class Terminated(Exception):
    """SIGTERM came."""


class SigtermHandler:
    """The end of one agent and of its calls to `runtime`."""

    def __init__(self, runtime: Client, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock
        self._limit: asyncio.Task[None] | None = None

    async def until_stopped(self) -> None:
        """Wait for SIGTERM, then raise Terminated; begin the limit when the agent ends, for whatever reason."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError):  # signals reach the main thread alone
            loop.add_signal_handler(signal.SIGTERM, stopped.set)
        try:
            await stopped.wait()
        finally:
            with contextlib.suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGTERM)
            self._limit = asyncio.create_task(self._end_calls(), name="end of calls")
        raise Terminated

    async def _end_calls(self) -> None:
        await self._clock.sleep(CALL_SECONDS)
        log.warning("the runtime does not answer: pending calls are abandoned")
        await self._runtime.close()

    def over(self) -> None:
        """Cancel the limit: no call is under way any more."""
        if self._limit is not None:
            self._limit.cancel()
