"""Reading logs delays neither the agent's other files nor the logs of other namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent import threads
from agent.server import log_files
from agent.server.container_logs import _LogResponse
from agent.server.log_lines import LogOptions
from agent.server.log_threads import THREADS, LogThreads
from agent.server.session_slots import SessionSlots
from kube.serving.frames import SessionYield
from tests.support.hollow import eventually

LINE = b"2026-01-01T00:00:00.000000000Z stdout F x\n"


async def _runs() -> bool:
    return True


async def test_one_call_searches_a_piece_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, pread, calls = tmp_path / "0.log", os.pread, [0]
    path.write_bytes(LINE * 100_000)

    def counted(fd: int, size: int, offset: int) -> bytes:
        calls[-1] += size
        return pread(fd, size, offset)

    async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        calls.append(0)
        return function(*args, **kwargs)

    monkeypatch.setattr(os, "pread", counted)
    options = LogOptions(tail_lines=1_000_000_000, limit_bytes=2)
    pieces = log_files.read(tmp_path, path, options, _runs, SessionYield(), in_thread)
    assert [piece async for piece in pieces] == [b"x\n"]
    assert len(calls) > 4
    assert max(calls) <= 1 << 20


async def test_logs_on_a_slow_disk_leave_the_threads_of_other_files_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.Threads().install()
    path, release, pread = tmp_path / "0.log", threading.Event(), os.pread
    path.write_bytes(LINE)

    def slow(fd: int, size: int, offset: int) -> bytes:
        release.wait()
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", slow)
    of_logs = LogThreads()

    async def read(options: LogOptions) -> bytes:
        pieces = log_files.read(tmp_path, path, options, _runs, SessionYield(), of_logs.of("team"))
        return b"".join([piece async for piece in pieces])

    options = [LogOptions(), LogOptions(tail_lines=5), LogOptions(since=1)] * threads.FILES
    readers = [asyncio.create_task(read(each)) for each in options]
    try:
        async with asyncio.timeout(5):
            for _ in range(100):  # until all that can block do
                assert await asyncio.to_thread(os.getpid)
                await asyncio.sleep(0.005)
    finally:
        release.set()
    assert await asyncio.gather(*readers) == [b"x\n"] * len(readers)


async def test_namespaces_read_in_round_robin() -> None:
    threads_, release, order = LogThreads(), threading.Event(), list[str]()

    def work(name: str) -> None:
        release.wait()
        order.append(name)

    calls = [asyncio.create_task(threads_.of("many")(work, "many")) for _ in range(20)]
    await asyncio.sleep(0)
    calls.append(asyncio.create_task(threads_.of("one")(work, "one")))
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*calls)
    assert order.index("one") <= THREADS + 1


async def test_a_cancelled_call_is_waited_for_as_it_uses_a_descriptor() -> None:
    began, release, ended = threading.Event(), threading.Event(), list[int]()

    def work() -> None:
        began.set()
        release.wait()
        ended.append(1)

    call = asyncio.create_task(LogThreads().of("n")(work))
    await asyncio.to_thread(began.wait)
    call.cancel()
    await asyncio.sleep(0.01)
    assert not call.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended == [1]


async def test_a_search_ends_with_its_client() -> None:
    begun, closed, gone = asyncio.Event(), list[int](), asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            begun.set()
            await asyncio.Event().wait()  # searches
            yield b""
        finally:
            closed.append(1)

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    slots = SessionSlots.of_logs()
    response = asyncio.create_task(_LogResponse(pieces(), slots, "n")({"type": "http"}, receive, send))
    await begun.wait()
    gone.set()
    async with asyncio.timeout(5):
        await response
    assert closed == [1]


async def test_a_reader_that_ends_while_its_file_is_opened_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened, release = tmp_path / "0.log", threading.Event(), threading.Event()
    path.write_bytes(LINE)
    open_beneath, descriptors = log_files.open_beneath, list[int]()

    def slow(root: Path, path: Path) -> int:
        descriptors.append(open_beneath(root, path))
        opened.set()
        release.wait()
        return descriptors[0]

    monkeypatch.setattr(log_files, "open_beneath", slow)
    pieces = log_files.read(tmp_path, path, LogOptions(), _runs, SessionYield(), LogThreads().of("n"))
    reading = asyncio.create_task(anext(pieces))
    await asyncio.to_thread(opened.wait)
    for _ in range(3):  # as a task group of anyio, in each iteration
        reading.cancel()
        await asyncio.sleep(0)
    release.set()
    await asyncio.wait((reading,))
    await asyncio.sleep(0.05)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])


async def test_a_descriptor_stays_open_and_a_slot_taken_until_the_call_ends_however_often_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, began, release, pread = tmp_path / "0.log", threading.Event(), threading.Event(), os.pread
    path.write_bytes(LINE)
    open_after, descriptors = list[bool](), list[int]()

    def slow(fd: int, size: int, offset: int) -> bytes:
        descriptors.append(fd)
        began.set()
        release.wait()
        with contextlib.suppress(OSError):
            open_after.append(bool(os.fstat(fd)))
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", slow)
    of_logs = LogThreads()
    pieces = log_files.read(tmp_path, path, LogOptions(), _runs, SessionYield(), of_logs.of("n"))
    reading = asyncio.create_task(anext(pieces))
    await asyncio.to_thread(began.wait)
    for _ in range(3):
        reading.cancel()
        await asyncio.sleep(0)
    await asyncio.wait((reading,))
    assert of_logs._slots._free == THREADS - 1
    release.set()
    await eventually(lambda: open_after == [True] and of_logs._slots._free == THREADS)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])
