"""Order and grace periods of pods at the node's shutdown."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import configure
from agent.config import ShutdownPeriod
from agent.flags import Flags
from agent.kubelet_configuration import ConfigError, parse
from agent.shutdown.logind import LogindError
from agent.shutdown.manager import Shutdown
from agent.shutdown.periods import grace, grouped, periods
from agent.shutdown.state import load
from tests.support.clock import FakeClock
from tests.unit.agent.pods import pod

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
CRITICAL = 2_000_000_000


def test_two_settings_are_two_periods() -> None:
    assert periods(30, 10) == (ShutdownPeriod(0, 20), ShutdownPeriod(CRITICAL, 10))
    assert periods(0, 0) == ()


@pytest.mark.parametrize(
    ("priority", "group"),
    [(-5, 0), (0, 0), (9, 0), (10, 10), (99, 10), (100, 100), (CRITICAL, 100)],
)
def test_a_pod_belongs_to_the_highest_period_that_its_priority_reaches(priority: int, group: int) -> None:
    configured = [ShutdownPeriod(100, 1), ShutdownPeriod(0, 3), ShutdownPeriod(10, 2)]
    found = [period.priority for period, pods in grouped(configured, [pod(priority=priority)]) if pods]
    assert found == [group]


def test_groups_go_from_low_to_high() -> None:
    assert [period.priority for period, _ in grouped([ShutdownPeriod(5, 1), ShutdownPeriod(0, 1)], [])] == [0, 5]


def test_a_pod_has_its_own_grace_but_no_more_than_the_period() -> None:
    assert grace(pod(terminationGracePeriodSeconds=5), ShutdownPeriod(0, 20)) == 5
    assert grace(pod(terminationGracePeriodSeconds=60), ShutdownPeriod(0, 20)) == 20
    assert grace(pod(terminationGracePeriodSeconds=None), ShutdownPeriod(0, 20)) == 20


def built(text: str) -> tuple[ShutdownPeriod, ...]:
    file, idle = parse(HEAD + text)
    assert idle == []
    return configure.build(file, Flags()).shutdown_periods


def test_the_file_names_periods_in_one_of_two_ways() -> None:
    assert built("shutdownGracePeriod: 1m\nshutdownGracePeriodCriticalPods: 20s\n") == periods(60, 20)
    listed = "shutdownGracePeriodByPodPriority: [{priority: 7, shutdownGracePeriodSeconds: 9}]\n"
    assert built(listed) == (ShutdownPeriod(7, 9),)
    for bad in (
        listed + "shutdownGracePeriod: 1m\n",
        "shutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 6s\n",
        "shutdownGracePeriod: 100ms\n",
    ):
        with pytest.raises(ConfigError):
            built(bad)


class Node:
    """Logind, which announces one shutdown, and the pods; `done` has what happened in its order."""

    def __init__(self, *uids: str, clock: FakeClock, failing: str = "") -> None:
        self.done = list[str]()
        self.locked, self.released = asyncio.Event(), asyncio.Event()
        self._clock, self._failing = clock, failing
        self._views = [
            SimpleNamespace(pod=pod(metadata={"name": uid, "uid": uid}), alive=True, terminating=False) for uid in uids
        ]

    async def allow(self, seconds: float) -> None:
        pass

    async def inhibit(self) -> None:
        self.done.append("inhibit")
        self.locked.set()

    async def events(self) -> AsyncIterator[bool | None]:
        await self.locked.wait()
        yield True
        await asyncio.Event().wait()

    def release(self) -> None:
        self.done.append("release")
        self.released.set()

    def close(self) -> None:
        pass

    def views(self) -> list[Any]:
        return self._views

    async def end(self, uid: str, end: Any, grace: int) -> None:
        if uid == self._failing:
            raise RuntimeError("a bug")
        await self._clock.sleep(1.0)
        self.done.append(f"end {uid}")

    def manager(self, folder: Path, state: Any) -> Shutdown:
        recorder: Any = SimpleNamespace(event=lambda *_: None)
        here: Any = self

        async def connect() -> Any:
            return self

        return Shutdown(
            periods(30, 10), here, state, recorder, connect, node_name="n", folder=folder, clock=self._clock
        )

    async def shut_down(self, folder: Path) -> None:
        """Run the shutdown manager until the shutdown may continue."""
        state: Any = SimpleNamespace(shutting_down=False, request_report=lambda: None)
        runs = asyncio.create_task(self.manager(folder, state).run())
        try:
            async with asyncio.timeout(60):
                while not runs.done() and not self.released.is_set():
                    await self._clock.advance(0.1)
                    await asyncio.sleep(0.001)  # a file is being written in a thread
            if runs.done():
                await runs
        finally:
            runs.cancel()
            await asyncio.gather(runs, return_exceptions=True)


async def test_pods_end_before_the_shutdown_continues(tmp_path: Path) -> None:
    clock = FakeClock()
    node, began = Node("a", "b", clock=clock), clock.now().timestamp()
    await node.shut_down(tmp_path)
    assert node.done == ["inhibit", "end a", "end b", "release"]
    assert load(tmp_path)[0] == began <= load(tmp_path)[1]


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ('{"startTime":"2026-01-01T00:00:00.5+01:00","endTime":"0001-01-01T00:00:00Z"}', (1767222000.0, 0.0)),
        ('{"startTime":"2026-01-01T00:00:00.123456789Z","endTime":null}', (1767225600.0, 0.0)),
        ('{"startTime":"2026-01-01T00:00:00Z","endTime":"2026-01-01T00:00:09.9Z"}', (1767225600.0, 1767225609.0)),
        ('{"startTime":"x","endTime":"2026-01-01T00:00:09Z"}', (0.0, 0.0)),
        ("{}", (0.0, 0.0)),
    ],
)
def test_times_of_an_upstream_kubelets_last_shutdown_are_read(
    tmp_path: Path, text: str, times: tuple[float, float]
) -> None:
    (tmp_path / "graceful_node_shutdown_state").write_text(text)
    assert load(tmp_path) == times


async def test_pods_end_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    node = Node("a", "b", clock=FakeClock())
    await node.shut_down(tmp_path)
    assert node.done == ["inhibit", "end a", "end b", "release"]


async def test_pods_end_when_one_of_them_fails_unexpectedly(tmp_path: Path) -> None:
    node = Node("a", "b", clock=FakeClock(), failing="a")
    await node.shut_down(tmp_path)
    assert node.done == ["inhibit", "end b", "release"]


class LostBus(Node):
    """Logind whose connection is lost after the announcement of a shutdown; `goes_on`: it is not cancelled meanwhile."""

    def __init__(self, clock: FakeClock, *, goes_on: bool) -> None:
        super().__init__(clock=clock)
        self._goes_on, self.connections = goes_on, 0

    async def events(self) -> AsyncIterator[bool | None]:
        self.connections += 1
        if self.connections == 1:
            yield True
            return
        await asyncio.Event().wait()

    async def shuts_down(self) -> bool:
        return self._goes_on


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_shutdown_that_was_cancelled_without_a_connection_is_over(tmp_path: Path, goes_on: bool) -> None:
    clock, seen = FakeClock(), list[bool]()
    state: Any = SimpleNamespace(shutting_down=False, request_report=lambda: seen.append(state.shutting_down))
    node = LostBus(clock, goes_on=goes_on)
    runs = asyncio.create_task(node.manager(tmp_path, state).run())
    try:
        async with asyncio.timeout(60):
            while node.connections < 2:
                await clock.advance(0.1)
                await asyncio.sleep(0.001)
        assert seen == ([True] if goes_on else [True, False]) and state.shutting_down is goes_on
    finally:
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)


class WithoutLock(Node):
    """Logind that gives no lock, and announces a shutdown."""

    async def inhibit(self) -> None:
        self.locked.set()
        raise LogindError("Inhibit: no answer")


async def test_pods_end_in_a_shutdown_that_cannot_be_delayed(tmp_path: Path) -> None:
    node = WithoutLock("a", clock=FakeClock())
    await node.shut_down(tmp_path)
    assert node.done == ["end a", "release"]


class Restarted(Node):
    """Logind that announces a shutdown, and is started again and has forgotten it."""

    forgotten = False

    async def inhibit(self) -> None:
        await super().inhibit()
        if self.done.count("inhibit") == 2:
            self.released.set()

    def release(self) -> None:
        self.done.append("release")

    async def events(self) -> AsyncIterator[bool | None]:
        await self.locked.wait()
        yield True
        self.forgotten = True
        yield None
        await asyncio.Event().wait()

    async def shuts_down(self) -> bool:
        return not self.forgotten


async def test_a_shutdown_is_over_if_logind_was_started_again_and_has_forgotten_it(tmp_path: Path) -> None:
    clock, seen = FakeClock(), list[bool]()
    node = Restarted(clock=clock)
    state: Any = SimpleNamespace(shutting_down=False, request_report=lambda: seen.append(state.shutting_down))
    runs = asyncio.create_task(node.manager(tmp_path, state).run())
    try:
        async with asyncio.timeout(60):
            while not node.released.is_set():
                await clock.advance(0.1)
                await asyncio.sleep(0.001)
        assert seen == [True, False] and node.done == ["inhibit", "release", "inhibit"]
    finally:
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
