"""Number of iterations of the event loop in which a test's work is done."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Iterations:
    """Counts the iterations of the running event loop inside the `with` statement."""

    def __init__(self) -> None:
        self.number = 0

    def __enter__(self) -> Self:
        self._task = asyncio.create_task(self._count(), name="iterations")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._task.cancel()

    async def _count(self) -> None:
        while True:
            self.number += 1
            await asyncio.sleep(0)
