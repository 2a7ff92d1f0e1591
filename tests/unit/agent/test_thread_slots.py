"""Few calls to volumes run at a time, fair by namespace, and those that hang delay no others."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent import thread_slots, threads
from agent.pods.manager import NEXT_SECONDS, PodManager
from agent.volumes import cleanup


def busy(seconds: float) -> Callable[[], None]:
    """Return work that pauses between its steps."""

    def work() -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            thread_slots.pause()

    return work


async def call(uid: str, function: Callable[[], object], namespace: str = "n") -> None:
    await threads.call(uid, function, owner=threads.Owner(uid, namespace))


async def test_few_calls_have_threads_and_two_of_a_namespace() -> None:
    release, running, most = threading.Event(), list[str](), list[int]()

    def work(namespace: str) -> None:
        running.append(namespace)
        most.append(len(running))
        while not release.is_set():
            sum(range(1000))  # it computes: it is not blocked
        running.remove(namespace)

    calls = [
        asyncio.create_task(call(f"{name}{number}", lambda name=name: work(name), name))  # type: ignore[misc]
        for name in "abc"
        for number in range(20)
    ]
    async with asyncio.timeout(10):
        while len(running) < thread_slots.NODE:
            await asyncio.sleep(0.01)
    await asyncio.sleep(2 * thread_slots.BLOCKED)
    assert sorted(running) == ["a", "a", "b", "b"]
    release.set()
    await asyncio.gather(*calls)
    assert max(most) == thread_slots.NODE


async def test_long_work_passes_its_slot_on_and_continues() -> None:
    long = [asyncio.create_task(call(f"long{number}", busy(1.0))) for number in range(3)]
    await asyncio.sleep(0.01)
    for namespace in ("n", "other"):
        await call("short", lambda: None, namespace)
        assert not any(each.done() for each in long)
    await asyncio.gather(*long)


async def test_calls_that_hang_lose_their_slots_and_wait_for_another_when_they_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_slots, "BLOCKED", 0.02)
    release, order = threading.Event(), list[str]()

    def hang() -> None:
        release.wait()
        thread_slots.pause()
        order.append("continued")

    hung = [asyncio.create_task(call(f"hung{number}", hang, f"n{number % 3}")) for number in range(12)]
    async with asyncio.timeout(10):
        await call("other", lambda: order.append("other"), "n0")
    slots = thread_slots.of_loop()
    assert order == ["other"]
    while slots.waiting:
        await asyncio.sleep(0.01)
    release.set()
    await asyncio.gather(*hung)
    assert order == ["other"] + ["continued"] * 12
    assert not slots._holding and not slots.waiting and not slots.contended


async def test_a_call_that_waits_for_its_slot_does_not_count_as_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.3)
    monkeypatch.setattr(threads, "NAMESPACE", 3)
    calls = [asyncio.create_task(call(f"u{number}", busy(0.2))) for number in range(10)]
    await asyncio.sleep(0.6)
    calls.append(asyncio.create_task(call("late", os.getpid)))
    await asyncio.gather(*calls)


async def test_a_large_folder_is_removed_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_slots, "SLICE", 0.001)
    for pod in range(6):
        for number in range(300):
            (tmp_path / f"u{pod}" / str(number)).mkdir(parents=True)
    ended = list[str]()

    def remove(uid: str) -> None:
        cleanup.remove_tree(tmp_path / uid)
        ended.append(uid)

    calls = [asyncio.create_task(call(f"u{pod}", lambda pod=pod: remove(f"u{pod}"))) for pod in range(6)]  # type: ignore[misc]
    await asyncio.sleep(0)
    await call("short", lambda: ended.append("short"))
    await asyncio.gather(*calls)
    assert ended[0] == "short"
    assert not os.listdir(tmp_path)


def test_pods_of_a_changed_object_are_refreshed_one_after_another() -> None:
    delays = list[float]()
    manager = PodManager(None)  # type: ignore[arg-type]
    manager.workers = {str(number): SimpleNamespace(references_changed=delays.append) for number in range(10)}  # type: ignore[misc]
    manager.references_changed([*manager.workers, "gone"])
    assert delays == [0.0] * 9 + [NEXT_SECONDS]


async def test_calls_begin_before_others_resume_which_have_turns_all_the_same() -> None:
    slots = thread_slots.ThreadSlots()

    def new() -> thread_slots.Work:
        return thread_slots.Work(slots, "n", lambda: None)

    walkers = [thread_slots.Work(slots, "n", lambda: None, begun=True) for _ in range(10)]
    for walker in walkers:
        slots.enter(walker)
    first = new()
    slots.enter(first)
    slots.wait_again(walkers[0])
    assert first.holds_slot
    for _ in range(50):
        slots.enter(new())
        slots.enter(new())
        slots.leave(next(iter(slots._holding)))
    assert not any(walker.waits for walker in walkers[1:])
