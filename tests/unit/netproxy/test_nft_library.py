"""Small changes of nf_tables by libnftables: changes left to the command, errors, time limits, and the thread's end."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kube.process import CommandError, Result
from netproxy.errors import UnansweredError, WriteError, WriteTimeout
from netproxy.nft import library, writer
from netproxy.nft.writer import NftWriter


class FakeLibrary:
    """The library's functions: keeps texts, answers with a status and a message, and may take until it is released."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.contexts = self.freed = 0
        self.status, self.message = 0, b""
        self.released = threading.Event()
        self.released.set()
        self.threads: set[str] = set()

    def nft_ctx_new(self, flags: int) -> int:
        self.contexts += 1
        return self.contexts

    def nft_ctx_free(self, context: int) -> None:
        self.freed += 1

    def nft_ctx_buffer_output(self, context: int) -> int:
        return 0

    nft_ctx_buffer_error = nft_ctx_buffer_output

    def nft_ctx_get_output_buffer(self, context: int) -> bytes:
        return b""

    def nft_ctx_get_error_buffer(self, context: int) -> bytes:
        return self.message

    def nft_run_cmd_from_buffer(self, context: int, text: bytes) -> int:
        self.threads.add(threading.current_thread().name)
        self.texts.append(text.decode())
        assert self.released.wait(30)
        return self.status


class Program:
    """`nft` in place of the real one: keeps the texts that it gets."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.error = ""

    async def run(self, argv: list[str], *, input: str = "", **_: Any) -> Result:
        self.texts.append(input)
        if self.error:
            raise CommandError(argv, f"exit status 1: {self.error}", Result(1, "", self.error))
        return Result(0, "", "")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    made = FakeLibrary()
    monkeypatch.setattr(library, "load", lambda name: made)
    monkeypatch.setattr(library, "nf_tables_generation", lambda: b"\0\0\0\1")
    return made


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    made = Program()
    monkeypatch.setattr(writer, "run", made.run)
    return made


def in_process() -> NftWriter:
    return NftWriter(in_process=True)


def waited(condition: Callable[[], object]) -> bool:
    """Return whether a condition becomes true in some seconds."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return bool(condition())


async def test_small_changes_of_all_tables_use_one_context_in_a_thread(fake: FakeLibrary, program: Program) -> None:
    tables = [in_process(), NftWriter("bridge", "t", in_process=True)]
    await asyncio.gather(*(each.apply(f"change {n}") for n, each in enumerate(tables * 5)))
    assert sorted(fake.texts) == [f"change {n}" for n in range(10)] and fake.contexts == 1
    assert fake.threads == {"libnftables"} and not program.texts


async def test_large_changes_checks_and_other_tables_are_the_programs(fake: FakeLibrary, program: Program) -> None:
    large = "x" * (library.LARGEST + 1)
    await in_process().apply(large)
    await in_process().apply("cut\0off")
    await in_process().check("check")
    await NftWriter().apply("other")
    assert program.texts == [large, "cut\0off", "check", "other"] and not fake.texts and not fake.contexts


async def test_the_error_of_a_refused_change_is_the_programs(fake: FakeLibrary, program: Program) -> None:
    fake.status, fake.message = -1, b"Error: first line\n"
    program.error = "/dev/stdin:2:1-3: Error: second line"
    with pytest.raises(WriteError, match="nft -f -: exit status 1: /dev/stdin:2:1-3: Error: second line") as caught:
        await in_process().apply("text")
    assert not isinstance(caught.value, UnansweredError) and program.texts == ["text"]


async def test_a_change_that_only_the_library_refuses_is_logged(
    fake: FakeLibrary, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    fake.status, fake.message = -1, b"Error: unknown\n"
    await in_process().apply("text")
    fake.message = b""
    await in_process().apply("text")
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["Error: unknown", "status -1"]
    assert program.texts == ["text"] * 2


@pytest.mark.parametrize("error", [OSError("libnftables.so.1: no such file"), AttributeError("nft_ctx_new")])
async def test_without_a_library_the_program_makes_all_changes(
    error: Exception, program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(name: str) -> Any:
        raise error

    monkeypatch.setattr(library, "load", load)
    monkeypatch.setattr(library, "nf_tables_generation", lambda: b"\0\0\0\1")
    for number in range(3):
        await in_process().apply(str(number))
    assert program.texts == ["0", "1", "2"]
    assert len(caplog.records) == 1 and str(error) in caplog.text


async def test_no_context_is_opened_while_nf_tables_does_not_answer(
    fake: FakeLibrary, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "nf_tables_generation", lambda: b"")
    await in_process().apply("first")
    assert not fake.contexts
    monkeypatch.setattr(library, "nf_tables_generation", lambda: b"\0\0\0\1")
    await in_process().apply("second")
    assert (program.texts, fake.texts) == (["first"], ["second"])


async def test_a_hung_change_blocks_neither_the_event_loop_nor_other_changes(
    fake: FakeLibrary, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TIMEOUT", 0.2)
    monkeypatch.setattr(library, "BUSY_SECONDS", 0.02)
    fake.released.clear()
    try:
        with pytest.raises(WriteTimeout, match=r"libnftables: still running after 0\.2 s"):
            await in_process().apply("hung")
        await in_process().apply("other")
        assert (fake.texts, program.texts) == (["hung"], ["other"])
    finally:
        fake.released.set()
    monkeypatch.setattr(library, "BUSY_SECONDS", 10)
    await in_process().apply("later")
    assert (fake.texts, program.texts) == (["hung", "later"], ["other"])


async def test_a_table_that_costs_the_library_much_is_left_to_the_program_for_some_time(
    fake: FakeLibrary, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(library, "PROGRAM_SECONDS", 0.2)
    nft = in_process()
    await nft.apply("first")
    await nft.apply("second")
    assert (fake.texts, program.texts) == (["first"], ["second"])
    assert (fake.contexts, fake.freed) == (1, 1)  # and with it the memory
    await asyncio.sleep(0.2)
    await nft.apply("third")
    assert (fake.texts, fake.contexts) == (["first", "third"], 2)


async def test_a_cancelled_change_has_ended_when_its_caller_continues(fake: FakeLibrary, program: Program) -> None:
    fake.released.clear()
    change = asyncio.create_task(in_process().apply("cancelled"))
    while not fake.texts:
        await asyncio.sleep(0.01)
    change.cancel()
    await asyncio.sleep(0.05)
    assert not change.done()
    fake.released.set()
    with pytest.raises(asyncio.CancelledError):
        await change
    await in_process().apply("next")
    assert fake.texts == ["cancelled", "next"] and not program.texts


def test_the_thread_and_the_context_end_with_the_event_loop(fake: FakeLibrary, program: Program) -> None:
    for number in range(2):
        asyncio.run(in_process().apply(str(number)))
    assert waited(lambda: fake.freed == 2) and fake.contexts == 2
    assert waited(lambda: all(each.name != "libnftables" for each in threading.enumerate()))


def test_a_result_for_a_closed_event_loop_is_dropped(fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "TIMEOUT", 0.05)
    fake.released.clear()
    with pytest.raises(WriteTimeout):
        asyncio.run(in_process().apply("hung"))
    fake.released.set()
    assert waited(lambda: fake.freed == 1)
