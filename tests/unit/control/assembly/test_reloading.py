"""Configuration files that are read again: contents that fail are retried with back-off."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from control.assembly.reloading import LAST_RETRY, Reloaded
from tests.support.clock import FakeClock


class Follower:
    """Follows a file in virtual time; `fails` is the number of attempts that fail."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock, self.fails = path, FakeClock(), 0
        self.attempts: list[tuple[float, bytes]] = []
        path.write_bytes(b"first")
        self._file = Reloaded("encryption", path)
        self._file.first()

    async def take(self, text: bytes) -> None:
        self.attempts.append((self.clock.monotonic(), text))
        if self.fails:
            self.fails -= 1
            raise ValueError("the plugin does not answer")

    async def run(self, seconds: int) -> None:
        task = asyncio.create_task(self._file.follow(self.take, self.clock, 1.0))
        for _ in range(seconds):
            await self.clock.sleeping()  # the file is read in a thread
            await self.clock.advance(1.0)
        await self.clock.sleeping()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_content_that_fails_is_retried_with_back_off_until_it_is_used(tmp_path: Path) -> None:
    tested = Follower(tmp_path / "file")
    tested.path.write_bytes(b"second")
    tested.fails = 4
    await tested.run(60)
    assert [time for time, _ in tested.attempts] == [1.0, 2.0, 4.0, 8.0, 16.0]


async def test_a_content_that_always_fails_is_retried_each_minute_and_another_at_once(tmp_path: Path) -> None:
    tested = Follower(tmp_path / "file")
    tested.path.write_bytes(b"second")
    tested.fails = 10**6
    await tested.run(600)
    times = [time for time, _ in tested.attempts]
    assert times[-1] - times[-2] == LAST_RETRY and len(times) < 20
    tested.attempts.clear()
    tested.path.write_bytes(b"third, which works")
    tested.fails = 0
    await tested.run(5)
    assert [text for _, text in tested.attempts] == [b"third, which works"]


async def test_a_content_in_use_is_not_used_again_and_a_missing_file_is_reported_with_back_off(tmp_path: Path) -> None:
    tested = Follower(tmp_path / "file")
    os.utime(tested.path, (1, 1))
    await tested.run(5)
    tested.path.unlink()
    await tested.run(5)
    tested.path.write_bytes(b"first")
    await tested.run(5)
    assert tested.attempts == []
