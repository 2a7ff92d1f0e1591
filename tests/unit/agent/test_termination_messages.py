"""A termination message in a file of a volume is read however many calls are ahead of it, unless the file hangs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agent import thread_slots, threads
from agent.pods import termination_messages
from agent.runtime_records import ContainerRecord, State

OWNER = threads.Owner("uid", "n")


def record(file: Path) -> ContainerRecord:
    return ContainerRecord(id="id", name="main", state=State.EXITED, message_file=str(file))


async def test_waiting_for_a_slot_is_no_part_of_the_time_for_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination_messages, "VOLUME_SECONDS", 0.2)
    monkeypatch.setattr(thread_slots, "BLOCKED", 60.0)
    (tmp_path / "message").write_text("the reason")
    release = threading.Event()
    ahead = [
        asyncio.create_task(threads.call(f"ahead {number}", release.wait, owner=OWNER))
        for number in range(thread_slots.NAMESPACE)
    ]
    await asyncio.sleep(0)
    reading = asyncio.create_task(
        termination_messages.with_message(record(tmp_path / "message"), tmp_path / "pod", OWNER)
    )
    await asyncio.sleep(0.5)
    release.set()
    await asyncio.gather(*ahead)
    assert (await reading).message == "the reason"


async def test_reading_and_waiting_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination_messages, "VOLUME_SECONDS", 0.05)
    monkeypatch.setattr(threads, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(thread_slots, "NAMESPACE", 1)
    monkeypatch.setattr(thread_slots, "BLOCKED", 60.0)
    release = threading.Event()
    monkeypatch.setattr(termination_messages, "read_message", lambda file: str(release.wait()))
    try:
        async with asyncio.timeout(5):
            for name in ("hangs", "waits"):
                found = await termination_messages.with_message(record(tmp_path / name), tmp_path / "pod", OWNER)
                assert not found.message
    finally:
        release.set()
    async with asyncio.timeout(5):
        while threads.under_way(f"message {tmp_path / 'waits'}"):
            await asyncio.sleep(0.01)
