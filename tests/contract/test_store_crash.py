"""Kill -9 during writes: acknowledged writes are durable, and no revision is ever used twice."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from control.storage.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
WRITER = Path(__file__).with_name("store_writer.py")
ROUNDS = 4


async def write_and_kill(path: Path, start: int, after_lines: int) -> list[list[str]]:
    """Let the writer acknowledge some writes, kill it and return all that it had acknowledged."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(WRITER),
        str(path),
        str(start),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        lines = []
        async with asyncio.timeout(60):
            while len(lines) < after_lines:
                line = await process.stdout.readline()
                assert line, "the writer ended by itself"
                lines.append(line)
        process.kill()
        lines += (await process.stdout.read()).splitlines(keepends=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return [line.decode().split() for line in lines if line.endswith(b"\n")]


async def test_acknowledged_writes_survive_kill_9_and_revisions_are_never_reused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    acknowledged: dict[int, str] = {}
    highest = 0
    for round_ in range(ROUNDS):
        lines = await write_and_kill(path, start=round_ * 1_000_000, after_lines=150 + 70 * round_)
        revisions = [int(line[2]) for line in lines]
        assert min(revisions) > highest, "a revision was given out again after a crash"
        assert len(set(revisions)) == len(revisions)
        for verb, key, revision in lines:
            acknowledged[int(revision)] = f"{verb} {key}"

        store = await SqliteStore.open(path)
        try:
            highest = await store.current_revision()
            assert highest >= max(revisions)
            there = {item.key: item.revision for item in (await store.list("/")).items}
            gone = {entry.split()[1] for entry in acknowledged.values() if entry.startswith("del")}
            for revision, entry in acknowledged.items():
                verb, key = entry.split()
                if verb == "put" and key not in gone:
                    # A deletion may have become durable without its answer reaching the log.
                    assert there.get(key) == revision or int(key.rpartition("/")[2]) % 4 == 0, f"{key} was lost"
                elif verb == "del":
                    assert key not in there, f"{key} came back"
            replayed = store.watch("/", 0)
            events = {}
            while len(events) < highest:
                events |= {event.revision: event for event in (await asyncio.wait_for(anext(replayed), 30)).events}
            await replayed.aclose()
            for revision, entry in acknowledged.items():
                event = events[revision]
                assert entry == ("del " if event.type == "DELETED" else "put ") + event.key
        finally:
            await store.close()
