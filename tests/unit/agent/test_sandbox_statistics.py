"""Statistics of sandboxes that the runtime does not answer for: those of others, and evictions by them, do not depend on it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.usage import sandbox_statistics
from agent.usage.sandbox_statistics import AGAIN_SECONDS, SandboxStatistics
from cri.errors import CRIError, DeadlineExceededError, MessageTooLargeError
from cri.messages import ContainerStats, PodSandboxAttributes, PodSandboxStats
from tests.support.clock import FakeClock

TOO_LARGE = MessageTooLargeError("larger than max", code="RESOURCE_EXHAUSTED")


class Runtime:
    """A runtime that fails, or never answers (None), for sandboxes by ID and method; the list has the ID ""."""

    def __init__(self, **failing: CRIError | None) -> None:
        self.failing, self.calls = failing, list[str]()

    async def _answer(self, method: str, sandbox_id: str = "") -> None:
        self.calls.append(f"{method} {sandbox_id}".strip())
        key = f"{sandbox_id or 'all'}_{method}"
        if key in self.failing:
            error = self.failing[key]
            if error is None:
                await asyncio.Event().wait()
            else:
                raise error

    async def list_pod_sandbox_stats(self) -> list[PodSandboxStats]:
        await self._answer("list")
        return []

    async def pod_sandbox_stats(self, sandbox_id: str) -> PodSandboxStats:
        await self._answer("one", sandbox_id)
        made = PodSandboxStats(attributes=PodSandboxAttributes(id=sandbox_id))
        made.linux.process.process_count.value = 7
        return made

    async def list_container_stats(self, *, sandbox_id: str) -> list[ContainerStats]:
        await self._answer("containers", sandbox_id)
        return [ContainerStats()]


def statistics(runtime: Runtime, clock: FakeClock | None = None) -> SandboxStatistics:
    return SandboxStatistics(cast(Any, SimpleNamespace(runtime=runtime)), clock or FakeClock())


def summary(found: list[PodSandboxStats]) -> dict[str, tuple[int, int]]:
    """Return the numbers of processes and of containers with statistics."""
    return {each.attributes.id: (each.linux.process.process_count.value, len(each.linux.containers)) for each in found}


@pytest.mark.parametrize("error", [TOO_LARGE, CRIError("shim is gone"), DeadlineExceededError("late")])
async def test_a_sandbox_without_statistics_leaves_those_of_others(error: CRIError) -> None:
    runtime = Runtime(all_list=error, bad_one=error, bad_containers=error, half_one=TOO_LARGE)
    found = summary(await statistics(runtime).read(["bad", "good", "half"]))
    assert found == {"bad": (0, 0), "good": (7, 0), "half": (0, 1)}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_statistics, "LIST_SECONDS", 0.05)
    monkeypatch.setattr(sandbox_statistics, "ONE_SECONDS", 0.05)


@pytest.mark.usefixtures("short")
async def test_a_sandbox_that_is_never_answered_is_left_out_for_a_minute() -> None:
    runtime, clock = Runtime(all_list=None, frozen_one=None, half_one=TOO_LARGE, half_containers=None), FakeClock()
    read = statistics(runtime, clock).read
    ids = ["frozen", "good", "half"]
    for _ in range(2):
        assert summary(await read(ids)) == {"frozen": (0, 0), "good": (7, 0), "half": (0, 0)}
    assert runtime.calls.count("list") == runtime.calls.count("one frozen") == runtime.calls.count("one half") == 1
    assert runtime.calls.count("one good") == 2
    await clock.advance(AGAIN_SECONDS + 1)
    runtime.failing.clear()
    assert summary(await read(ids)) == {}, "the list is answered again"
    assert runtime.calls[-1] == "list"


@pytest.mark.usefixtures("short")
async def test_many_sandboxes_are_asked_for_a_few_at_once() -> None:
    names = [f"s{number}" for number in range(40)]
    runtime = Runtime(all_list=CRIError("no"), **{f"{name}_one": None for name in names})
    reading = asyncio.create_task(statistics(runtime).read(names))
    async with asyncio.timeout(10):
        while len(runtime.calls) < 1 + sandbox_statistics.AT_ONCE:
            await asyncio.sleep(0)
        assert len(runtime.calls) == 1 + sandbox_statistics.AT_ONCE
        assert len(await reading) == 40
