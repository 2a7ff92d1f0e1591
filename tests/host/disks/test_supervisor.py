"""The supervisor while the disk with its notes and logs is full."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.disks import SmallDisk, ext4_disk
from wherry.supervisor import write_plan


@asynccontextmanager
async def supervised(disk: SmallDisk) -> AsyncIterator[asyncio.subprocess.Process]:
    plan = disk.path / "plan.json"
    write_plan(plan, disk.path / "run", disk.path / "logs", {"daemon": ["sleep", "1000"]})
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "wherry.supervisor", str(plan))
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def until(process: asyncio.subprocess.Process, check: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not check():
            assert process.returncode is None, "the supervisor ended"
            await asyncio.sleep(0.01)


async def test_a_daemon_whose_log_and_notes_cannot_be_written_is_started_again_and_noted_later(tmp_path: Path) -> None:
    with ext4_disk(tmp_path) as disk:
        note = disk.path / "run" / "daemon.pid"
        async with supervised(disk) as process:
            await until(process, lambda: note.exists() and note.read_text().strip().isdigit())
            [first] = children(process.pid)
            # Only new files need space: the old ones of this few bytes are overwritten on a full disk, too.
            for name in ("logs", "run"):
                (disk.path / name).rename(disk.path / f"{name}-before")
            disk.fill()
            os.kill(first, signal.SIGKILL)
            await until(process, lambda: children(process.pid) not in ([], [first]))
            [second] = children(process.pid)
            disk.free()
            for name in ("logs", "run"):
                (disk.path / f"{name}-before").rename(disk.path / name)
            await until(process, lambda: note.exists() and note.read_text() == f"{second}\n")
