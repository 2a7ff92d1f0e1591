import asyncio
import ctypes
import errno
import os
import tracemalloc
from pathlib import Path

import pytest

from agent.server import log_files, log_lines
from agent.server.log_files import LINES_PER_YIELD, open_beneath, read
from agent.server.log_lines import LogFormatError, LogOptions, LogWriter, fixed_time, nanoseconds, parse
from agent.server.log_tail import tail_offset
from kube import inotify
from kube.serving.frames import SessionYield

TIMES = [f"2026-01-01T00:00:0{second}.5Z" for second in range(10)]
LINES = [f"{time} stdout F line {number}\n".encode() for number, time in enumerate(TIMES)]


async def _never() -> bool:
    return False


async def _read(tmp_path: Path, content: bytes, **options: object) -> bytes:
    path = tmp_path / "pod" / "main" / "0.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    pieces = read(tmp_path, path, LogOptions(**options), _never, SessionYield(), asyncio.to_thread)  # type: ignore[arg-type]
    return b"".join([piece async for piece in pieces])


async def test_only_the_text_is_shown(tmp_path: Path) -> None:
    assert await _read(tmp_path, b"".join(LINES[:2])) == b"line 0\nline 1\n"


async def test_a_line_that_goes_on_is_joined(tmp_path: Path) -> None:
    content = b"".join(
        (
            b"2026-01-01T00:00:00Z stdout P one \n",
            b"2026-01-01T00:00:01Z stdout P two \n",
            b"2026-01-01T00:00:02Z stdout F three\n",
            b"2026-01-01T00:00:03Z stderr F four\n",
        )
    )
    assert await _read(tmp_path, content) == b"one two three\nfour\n"
    assert await _read(tmp_path, content, timestamps=True) == (
        b"2026-01-01T00:00:00.000000000Z one two three\n2026-01-01T00:00:03.000000000Z four\n"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tail_lines": 0}, b""),
        ({"tail_lines": 2}, b"line 8\nline 9\n"),
        ({"tail_lines": 100}, b"".join(b"line %d\n" % n for n in range(10))),
        ({"limit_bytes": 9}, b"line 0\nli"),
        ({"tail_lines": 3, "limit_bytes": 7}, b"line 7\n"),
        ({"since": nanoseconds(TIMES[8].encode())}, b"line 8\nline 9\n"),
        ({"since": nanoseconds(TIMES[8].encode()) + 1}, b"line 9\n"),
        ({"tail_lines": 1, "timestamps": True}, b"2026-01-01T00:00:09.500000000Z line 9\n"),
        ({"stream": "Stderr"}, b""),
        ({"stream": "Stdout", "tail_lines": 1}, b"line 9\n"),
    ],
)
async def test_options_choose_the_lines(tmp_path: Path, options: dict[str, object], expected: bytes) -> None:
    assert await _read(tmp_path, b"".join(LINES), **options) == expected


async def test_a_last_line_without_newline_is_shown_and_counts_as_one(tmp_path: Path) -> None:
    content = LINES[0] + LINES[1].rstrip(b"\n")
    assert await _read(tmp_path, content, tail_lines=1) == b"line 1\n"


async def test_malformed_lines_are_passed_over(tmp_path: Path) -> None:
    assert await _read(tmp_path, b"garbage\n" + LINES[0] + b"\n" + LINES[1]) == b"line 0\nline 1\n"


async def test_empty_lines_and_lines_with_spaces_are_kept(tmp_path: Path) -> None:
    content = b"2026-01-01T00:00:00Z stdout F \n2026-01-01T00:00:00Z stdout F  two  spaces \n"
    assert await _read(tmp_path, content) == b"\n two  spaces \n"


async def test_readers_of_many_short_lines_leave_the_event_loop_to_each_other_and_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, write = 0, LogWriter.write

    def count(writer: LogWriter, raw: bytes) -> bytes:
        nonlocal looked
        looked += 1
        return write(writer, raw)

    monkeypatch.setattr(LogWriter, "write", count)
    path, session_yield = tmp_path / "0.log", SessionYield()
    path.write_bytes(LINES[0] * 4000)

    async def reader() -> int:
        options = LogOptions(since=nanoseconds(TIMES[9].encode()))
        return len([piece async for piece in read(tmp_path, path, options, _never, session_yield, asyncio.to_thread)])

    tasks = [asyncio.create_task(reader()) for _ in range(4)]
    most = before = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        most, before = max(most, looked - before), looked
    assert await asyncio.gather(*tasks) == [0] * 4
    assert looked == 4 * 4000
    assert most == LINES_PER_YIELD


async def test_a_tail_is_found_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [b"%05d " % number + b"x" * (number % 97) + b"\n" for number in range(5000)]
    path.write_bytes(b"".join(lines))
    fd = os.open(path, os.O_RDONLY)
    try:
        for count in (1, 2, 700, 4999, 5000, 5001):
            assert path.read_bytes()[await tail_offset(fd, count, asyncio.to_thread) :] == b"".join(lines[-count:])
    finally:
        os.close(fd)


@pytest.mark.parametrize("raw", [b"", b"2026-01-01T00:00:00Z", b"2026-01-01T00:00:00Z stdin F x", b"{json}"])
def test_what_is_not_in_the_format_is_an_error(raw: bytes) -> None:
    with pytest.raises(LogFormatError):
        parse(raw)


@pytest.mark.parametrize(
    ("written", "shown", "nanos"),
    [
        (b"1970-01-01T00:00:01Z", b"1970-01-01T00:00:01.000000000Z", 1_000_000_000),
        (b"1970-01-01T00:00:01.25Z", b"1970-01-01T00:00:01.250000000Z", 1_250_000_000),
        (b"1970-01-01T01:00:01.123456789+01:00", b"1970-01-01T01:00:01.123456789+01:00", 1_123_456_789),
    ],
)
def test_times_have_any_number_of_decimals(written: bytes, shown: bytes, nanos: int) -> None:
    assert fixed_time(written) == shown
    assert nanoseconds(written) == nanos


def test_a_writer_that_reached_its_limit_is_full() -> None:
    writer = LogWriter(LogOptions(limit_bytes=3))
    assert writer.write(LINES[0]) == b"lin"
    assert writer.full


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_log_is_not_opened_through_links(tmp_path: Path, link: str) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "0.log").write_text("secret")
    logs = tmp_path / "logs" / "pod"
    logs.mkdir(parents=True)
    if link == "file":
        (logs / "main").mkdir()
        (logs / "main" / "0.log").symlink_to(secret / "0.log")
    else:
        (logs / "main").symlink_to(secret)
    with pytest.raises(OSError):
        open_beneath(tmp_path / "logs", logs / "main" / "0.log")


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "pod/../../secret"])
def test_a_path_outside_the_logs_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(ValueError):
        open_beneath(tmp_path / "logs", tmp_path / "logs" / path if not path.startswith("/") else Path(path))


async def test_of_a_line_without_an_end_the_beginning_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LONGEST_LINE", 1 << 20)
    lengths: list[int] = []
    monkeypatch.setattr(log_lines, "parse", lambda raw: lengths.append(len(raw)) or parse(raw))
    shown = await _read(tmp_path, b"2026-01-01T00:00:00Z stdout F " + b"x" * (4 << 20) + b"\n" + LINES[0])
    assert 1 << 20 <= shown.count(b"x") < 2 << 20 and shown.endswith(b"line 0\n")
    assert max(lengths) <= (1 << 20) + (128 << 10)


async def test_a_line_without_an_end_costs_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_CHUNK", 16 << 10)
    made, pread = list[int](), os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        made.append(tracemalloc.get_traced_memory()[1] - before[0])
        data = pread(fd, size, offset)
        tracemalloc.reset_peak()
        before[0] = tracemalloc.get_traced_memory()[0]
        return data

    monkeypatch.setattr(log_files.os, "pread", counted)
    line = b"2026-01-01T00:00:00Z stdout F " + b"x" * (2 << 20)
    tracemalloc.start()
    try:
        before = [tracemalloc.get_traced_memory()[0]]
        shown = await _read(tmp_path, line + b"\n" + LINES[0])
    finally:
        tracemalloc.stop()
    assert shown == b"x" * (2 << 20) + b"\nline 0\n"
    assert len(made) > 128 and sum(made) < 16 << 20


async def test_lines_are_whole_wherever_they_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = b"".join(b"line %d\n" % number for number in range(10))
    for chunk in (1, 2, 7, len(LINES[0]), len(LINES[0]) + 1, 1000):
        monkeypatch.setattr(log_files, "_CHUNK", chunk)
        assert await _read(tmp_path, b"".join(LINES)) == expected
        assert await _read(tmp_path, b"".join(LINES)[:-1]) == expected


async def test_a_log_is_followed_where_the_kernel_gives_no_inotify_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def inotify_init1(self, flags: int) -> int:
            ctypes.set_errno(errno.EMFILE)
            return -1

    monkeypatch.setattr(inotify, "_libc", Refusing())
    monkeypatch.setattr(inotify, "POLL_SECONDS", 0.01)
    path = tmp_path / "0.log"
    path.write_bytes(LINES[0])
    runs = True

    async def running() -> bool:
        return runs

    followed = read(tmp_path, path, LogOptions(follow=True), running, SessionYield(), asyncio.to_thread)
    async with asyncio.timeout(20):
        assert await anext(followed) == b"line 0\n"
        reading = asyncio.ensure_future(anext(followed))
        await asyncio.sleep(0)
        with path.open("ab") as file:
            file.write(LINES[1])
        assert await reading == b"line 1\n"
        path.rename(tmp_path / "0.log.old")
        path.write_bytes(LINES[2])
        assert await anext(followed) == b"line 2\n"
        runs = False
        with pytest.raises(StopAsyncIteration):
            await anext(followed)
