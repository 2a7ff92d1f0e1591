"""The checks at which free memory is given back: after a load, and what is freed in the time after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kube import bounded_cache
from kube.serving import allocators, memory
from kube.serving.memory import GROWN, LITTLE, SETTLING_CHECKS

MIB = 1 << 20


class ScriptedAllocator:
    """Has so many bytes free at each check; records the number of the check at each call."""

    def __init__(self, free: list[int]) -> None:
        self._free: Iterator[int] = iter(free)
        self.checks = 0
        self.done = asyncio.Event()
        self.trims: list[int] = []
        self.thread_caches: list[int] = []
        self._loop = asyncio.get_running_loop()

    def free(self) -> int:
        free = next(self._free, None)
        if free is None:
            self._loop.call_soon_threadsafe(self.done.set)
            return 0
        self.checks += 1
        return free

    def release_thread_cache(self) -> None:
        self.thread_caches.append(self.checks)

    def trim(self) -> None:
        self.trims.append(self.checks)


async def given_back(monkeypatch: pytest.MonkeyPatch, free: list[int]) -> ScriptedAllocator:
    """Return the allocator after checks that found so much free."""
    made = ScriptedAllocator(free)
    monkeypatch.setattr(allocators, "own", lambda: made)
    monkeypatch.setattr(memory, "_resident", lambda: 100 * MIB)
    monkeypatch.setattr(memory, "EVERY", 0.0)
    task = asyncio.create_task(memory.give_back())
    await asyncio.wait_for(made.done.wait(), 30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return made


async def test_little_is_given_back_only_in_the_time_after_much(monkeypatch: pytest.MonkeyPatch) -> None:
    little = [n * LITTLE for n in range(1, 4)]
    assert (await given_back(monkeypatch, little)).trims == []
    much = GROWN + MIB
    found = await given_back(monkeypatch, [0, much, much, *(much + each for each in little)])
    assert found.trims == [2, 4, 5, 6]


async def test_the_time_after_a_load_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    much = GROWN + MIB
    found = await given_back(monkeypatch, [much + n * LITTLE for n in range(2 * SETTLING_CHECKS)])
    assert found.trims == list(range(1, SETTLING_CHECKS + 2))


async def test_the_caches_of_the_event_loops_thread_and_of_the_other_one_are_freed_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = await given_back(monkeypatch, [GROWN + MIB, GROWN + MIB])
    assert found.thread_caches == [1, 1] and found.trims == [1]


async def test_caches_are_emptied_only_after_much(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[object] = []
    monkeypatch.setattr(bounded_cache, "forget_all", lambda: cleared.append(1))
    found = await given_back(monkeypatch, [GROWN + MIB, GROWN + 2 * MIB, GROWN + 3 * MIB])
    assert len(cleared) == 1 and found.trims == [1, 2, 3]


async def test_lists_of_freed_tuples_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[object] = []
    monkeypatch.setattr(memory, "release_tuples", lambda: released.append(1))
    await given_back(monkeypatch, [GROWN + MIB])
    assert len(released) == 1
