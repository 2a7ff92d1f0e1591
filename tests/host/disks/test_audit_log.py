"""The audit log on disks that run full: nobody waits for it, and it has whole lines only."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from control.auth.audit_log import LogFile
from tests.support.disks import KI, ext4_disk


def line(number: int) -> bytes:
    return json.dumps({"auditID": number, "text": "x" * 900}).encode() + b"\n"


async def written(log: LogFile) -> None:
    """Wait until the thread is done with all lines."""
    async with asyncio.timeout(30):
        while log._done < log._taken:
            await asyncio.sleep(0.005)


def numbers(path: Path) -> list[int]:
    """Return the numbers of the lines in the file; each line must be whole."""
    return [json.loads(text)["auditID"] for text in path.read_bytes().splitlines()]


async def test_a_full_disk_leaves_whole_lines_and_those_that_come_once_there_is_space(tmp_path: Path) -> None:
    with ext4_disk(tmp_path) as disk:
        log = LogFile(disk.path / "audit.log")
        disk.fill(leave=40 * KI)
        for number in range(300):
            log.write(line(number))
        await written(log)
        kept = numbers(disk.path / "audit.log")
        assert 0 < len(kept) < 300 and kept == list(range(len(kept)))
        assert log.dropped == 300 - len(kept)
        disk.free()
        log.write(line(1000))
        log.close()
        assert numbers(disk.path / "audit.log") == [*kept, 1000]


async def test_a_rotation_that_the_disk_refuses_is_made_good_later(tmp_path: Path) -> None:
    with ext4_disk(tmp_path) as disk:
        log = LogFile(disk.path / "logs" / "audit.log", max_bytes=20 * KI)
        for number in range(15):
            log.write(line(number))
        await written(log)
        disk.fill()
        for number in range(15, 60):
            log.write(line(number))
        await written(log)
        assert log.dropped > 0
        disk.free()
        log.write(line(1000))
        log.close()
        files = sorted((disk.path / "logs").glob("audit*.log"), key=lambda path: path.stat().st_mtime_ns)
        found = [number for path in files for number in numbers(path)]
        assert found[-1] == 1000 and len(found) == 61 - log.dropped
        assert found[:15] == list(range(15))
