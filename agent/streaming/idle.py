"""Ends a session that was idle for too long (streamingConnectionIdleTimeout).

An abandoned `kubectl exec` would otherwise keep a connection and a process for ever. Reads and writes on the client's
connection count as activity, so both directions of a hijacked connection record when they were last used.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, SupportsIndex

from agent.streaming.upgrade import Stream
from kube.clock import Clock


class Activity:
    """Time of the last activity on a connection, by the event loop's clock."""

    def __init__(self) -> None:
        self.last = asyncio.get_running_loop().time()

    def record(self) -> None:
        self.last = asyncio.get_running_loop().time()

    def seconds_ago(self) -> float:
        return asyncio.get_running_loop().time() - self.last


class ActivityReader(asyncio.StreamReader):
    """A reader that records activity."""

    def __init__(self, activity: Activity, **options: Any) -> None:
        super().__init__(**options)
        self.activity = activity

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take data in from the connection."""
        self.activity.record()
        super().feed_data(data)


class ActivityWriter(asyncio.StreamWriter):
    """A writer that records activity."""

    def __init__(self, activity: Activity, *args: Any) -> None:
        super().__init__(*args)
        self.activity = activity

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data, as soon as the connection takes it."""
        self.activity.record()
        super().write(data)


async def close_when_idle(stream: Stream, seconds: float, clock: Clock) -> None:
    """Close a client's connection once it was idle for so long; 0 is never. Return when it is closed."""
    if not isinstance(stream.reader, ActivityReader) or seconds <= 0:
        return
    closed = asyncio.create_task(_closed(stream), name="end of a session")
    try:
        while not closed.done():
            left = seconds - stream.reader.activity.seconds_ago()
            if left <= 0:
                stream.writer.close()
                stream.reader.feed_eof()
                return
            waiting = asyncio.ensure_future(clock.sleep(left))
            await asyncio.wait({closed, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
    finally:
        closed.cancel()


async def _closed(stream: Stream) -> None:
    with contextlib.suppress(OSError):
        await stream.writer.wait_closed()
