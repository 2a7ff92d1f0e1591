"""The burstable class has the CPU shares of its pods' allocated sizes, once these are saved, not of a pending resize."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.lifecycle.resize import Actuated, PendingResize
from agent.managers import state_files
from agent.pods.resource_state import ALLOCATED, ResourceState
from agent.pods.state import PodState
from agent.pods.steps.allocate import allocate
from kube.api import core_v1
from tests.support.clock import FakeClock
from tests.unit.agent.pods import pod


def sized(cpu: str) -> core_v1.Pod:
    return pod({"name": "main", "resources": {"requests": {"cpu": cpu}}})


class Context(SimpleNamespace):
    """As much of a pod's context as a resize looks at."""

    async def want(self, newer: core_v1.Pod, pending: PendingResize | None = None) -> None:
        self.state.pod, self.pending_resize = newer, lambda _: pending
        await allocate(self)  # type: ignore[arg-type]


def context(saved: ResourceState, changes: list[int]) -> Context:
    before = sized("100m")
    state = PodState(before, static=False, rejection=None, allocated=before, clock=FakeClock(), back_off_max=300.0)
    state.resize.actuated = Actuated({})
    ignored: Any = lambda *_, **__: None  # noqa: E731
    return Context(
        state=state,
        deps=SimpleNamespace(resources=SimpleNamespace(allocated=saved)),
        reporter=SimpleNamespace(resize_events=SimpleNamespace(record=ignored)),
        size_changed=lambda: changes.append(state.cpu_request),
    )


async def test_a_resize_counts_once_it_is_allocated(tmp_path: Path) -> None:
    changes = list[int]()
    of = context(ResourceState(tmp_path / ALLOCATED), changes)
    await of.want(sized("64"), PendingResize("Infeasible", "Node didn't have enough capacity"))
    assert (of.state.cpu_request, changes) == (100, [])
    await of.want(sized("200m"))
    assert (of.state.cpu_request, changes) == (200, [200])
    await of.want(sized("200m"))
    assert changes == [200]


@pytest.mark.parametrize(("wanted", "larger", "end"), [("200m", 200, 200), ("50m", 100, 50)])
async def test_others_are_admitted_in_addition_to_the_larger_size_while_another_one_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, larger: int, end: int
) -> None:
    changes = list[int]()
    of = context(ResourceState(tmp_path / ALLOCATED), changes)
    await of.want(sized("100m"))
    began, free, write = threading.Event(), threading.Event(), state_files.write

    def slow(path: Path, content: Any) -> None:
        began.set()
        assert free.wait(30)
        write(path, content)

    monkeypatch.setattr(state_files, "write", slow)
    resizing = asyncio.create_task(of.want(sized(wanted)))
    try:
        assert await asyncio.to_thread(began.wait, 30)
        assert (of.state.cpu_request, changes) == (larger, [])
    finally:
        free.set()
        await asyncio.wait_for(resizing, 30)
    assert (of.state.cpu_request, changes) == (end, [end])


async def test_a_resize_that_cannot_be_saved_changes_nothing_and_is_repeated_after_a_back_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, writes = list[int](), list[Path]()
    of = context(ResourceState(tmp_path / ALLOCATED), changes)
    await of.want(sized("100m"))

    def full(path: Path, content: Any) -> None:
        writes.append(path)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(state_files, "write", full)
        for _ in range(3):
            await of.want(sized("50m"))
            pending = of.state.resize.pending
            assert pending is not None and "cannot write allocated_pods_state: [Errno 28] No space" in pending.message
        assert len(writes) == 1 and (of.state.cpu_request, changes) == (100, [])
    assert of.state.step_back_off.retry_at
    of.state.step_back_off.retry_at.clear()
    await of.want(sized("50m"))
    assert of.state.resize.pending is None and (of.state.cpu_request, changes) == (50, [50])
    found = ResourceState(tmp_path / ALLOCATED).of(of.state.uid)
    assert found is not None and found.containers["main"].requests == {"cpu": "50m"}
