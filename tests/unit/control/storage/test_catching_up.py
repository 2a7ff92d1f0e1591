"""A server is ready again after trouble with its store only when its cache has caught up."""

from __future__ import annotations

import asyncio

from control.storage.catching_up import CatchingUp
from control.storage.store import FutureRevision
from tests.support.clock import FakeClock


class Cache:
    """A watch cache that is behind as long as the test says."""

    def __init__(self) -> None:
        self.ready, self.behind, self.clock, self.calls = True, False, FakeClock(), 0

    async def wait_current(self) -> int:
        self.calls += 1
        if self.behind:
            raise FutureRevision(7, 3)
        return 7


async def test_readiness_waits_for_the_cache_after_trouble() -> None:
    cache, trouble = Cache(), [""]
    checked = CatchingUp(cache, lambda: trouble[0] or None)  # type: ignore[arg-type]
    task = asyncio.create_task(checked.run())
    assert checked.check() is None
    trouble[0], cache.behind = "no leader", True
    assert checked.check() == "the watch cache is catching up with the store"
    trouble[0] = ""
    for _ in range(3):
        await cache.clock.advance(0.3)
        assert checked.check() is not None, "the store answers, but the watch on it is behind"
    assert cache.calls >= 3
    cache.behind = False
    await cache.clock.advance(0.3)
    assert checked.check() is None
    cache.ready = False
    assert checked.check() == "the watch cache is not filled"
    task.cancel()
