"""A transport that stops in the midst of writes, as a process does that is killed there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from kube.client import Response, Transport


class Failing:
    """A transport that ends its user after some writes: before a write is sent, or after it was, unheard."""

    def __init__(self, inner: Transport, chance: random.Random, writes: int) -> None:
        self._inner, self._chance, self._left = inner, chance, writes
        self.cut = asyncio.Event()

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method == "GET" or "/events" in path:
            return await self._inner.request(method, path, **options)
        self._left -= 1
        if self._left <= 0:
            if self._chance.random() < 0.5:
                await self._inner.request(method, path, **options)
            self.cut.set()
            await asyncio.Event().wait()
        return await self._inner.request(method, path, **options)

    def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        return self._inner.stream(path, query=query)

    async def close(self) -> None:
        await self._inner.close()
