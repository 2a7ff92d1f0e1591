"""Loops beside the pods' workers outlast their own errors, and what they failed at is done again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agent.claims.drivers import WIPE_SECONDS, DRADrivers
from agent.pods.child_task import UNEXPECTED_SECONDS
from agent.pods.lifecycle_events import RELIST_SECONDS
from agent.pods.workers import FIRST_READ_RETRY, PodWorkers
from cri.errors import UnimplementedError
from kube import loops
from kube.api import core_v1, meta_v1
from kube.errors import StatusError
from kube.informer import Change
from tests.support.clock import FakeClock, settle

FAILURES = 2


def failing(done: list[str], name: str) -> Callable[..., Awaitable[Any]]:
    """Return a function that fails at its first calls, and is recorded."""

    async def call(*given: object) -> dict[str, Any]:
        done.append(name)
        if done.count(name) <= FAILURES:
            raise OSError(f"{name} fails")
        return {}

    return call


def workers(clock: FakeClock, done: list[str], refresh: Callable[[], Awaitable[None]]) -> PodWorkers:
    async def events(*, settled: bool) -> AsyncIterator[Any]:
        raise UnimplementedError("events")
        yield

    deps: Any = SimpleNamespace(
        clock=clock,
        config=SimpleNamespace(cgroups_per_qos=True, sync_period=60.0),
        cgroups=SimpleNamespace(set_burstable_shares=failing(done, "shares")),
        runtime=SimpleNamespace(client=SimpleNamespace(events=events), pods=failing(done, "list")),
        metrics=SimpleNamespace(
            relist_seen=SimpleNamespace(value=lambda: 0, set=lambda value: None),
            relist_seconds=SimpleNamespace(observe=lambda value: None),
        ),
        now=clock.monotonic,
    )
    health: Any = SimpleNamespace(started=lambda: None, succeeded=lambda: None, ended=lambda: None)
    pods: Any = SimpleNamespace(workers={})
    return PodWorkers(deps, pods, SimpleNamespace(), refresh, health)  # type: ignore[arg-type]


async def test_an_error_of_the_runtimes_list_or_of_a_cgroup_does_not_end_the_agent() -> None:
    clock, done = FakeClock(), list[str]()
    running = asyncio.create_task(workers(clock, done, asyncio.Event().wait).run())  # type: ignore[arg-type]
    await clock.advance(2 * loops.LAST_RETRY + RELIST_SECONDS)
    assert done.count("shares") == FAILURES + 1, "tried again without a change of pods"
    assert done.count("list") > FAILURES
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("error", [OSError("unexpected"), StatusError(503, "ServiceUnavailable", "restarting")])
async def test_a_node_object_that_cannot_be_read_is_read_again_for_its_pod(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    clock, done = FakeClock(), list[str]()
    errors = [error] * FAILURES

    async def refresh() -> None:
        done.append("node")
        if errors:
            raise errors.pop()

    made = workers(clock, done, refresh)
    added: list[str] = []
    monkeypatch.setattr(made, "_add", lambda pod, **how: added.append(pod.metadata.uid))
    monkeypatch.setattr(made, "_update_mirror", lambda uid, pod: None)
    for uid in ("u1", "gone"):
        made._awaiting_node[uid] = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", uid=uid))
    running = asyncio.create_task(made.run())
    await settle()
    assert not added and done.count("node") == FAILURES, "not rejected for old labels"
    made.pod_changed(Change("DELETED", None, made._awaiting_node["gone"]))
    await clock.advance(FIRST_READ_RETRY)
    assert added == ["u1"] and done.count("node") == FAILURES + 1 and not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("cause", ["pod is deleted", "no Node object"])
async def test_a_pod_does_not_wait_for_a_node_object_that_it_does_not_need_or_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    clock, code = FakeClock(), 503

    async def refresh() -> None:
        raise StatusError(code, "NotFound" if code == 404 else "ServiceUnavailable", "no")

    made = workers(clock, [], refresh)
    added = list[tuple[Any, bool]]()
    monkeypatch.setattr(made, "_add", lambda pod, *, node_read=False, **how: added.append((pod, node_read)))
    monkeypatch.setattr(made, "_update_mirror", lambda uid, pod: None)
    waiting = made._awaiting_node["u"] = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", uid="u"))
    running = asyncio.create_task(made.run())
    await settle()
    assert not added
    if cause == "pod is deleted":
        metadata = meta_v1.ObjectMeta(name="p", uid="u", deletion_timestamp="2026-01-01T00:00:00Z")
        made.pod_changed(Change("MODIFIED", waiting, core_v1.Pod(metadata=metadata)))
        assert [pod.metadata for pod, _ in added] == [metadata]
    else:
        code = 404
        await clock.advance(FIRST_READ_RETRY)
        assert added == [(waiting, True)], "with the labels that are known"
    await clock.advance(FIRST_READ_RETRY * 4)
    assert len(added) == 1 and not made._awaiting_node and not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class FailingWorker:
    """A pod's worker that fails at its first runs and then waits; it is woken by a request to sync."""

    def __init__(self, uid: str, failures: int) -> None:
        pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name=uid, namespace="default", uid=uid))
        resize = SimpleNamespace(pending=None)
        self.state = SimpleNamespace(uid=uid, pod=pod, static=False, runtime=None, resize=resize)
        self.replace_runtime = lambda runtime: None
        self._failures, self.runs = failures, 0
        self.requested, self.ended = asyncio.Event(), asyncio.Event()
        self.request_sync = self.requested.set

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self._failures:
            raise RuntimeError("unexpected")
        await self.ended.wait()


async def test_a_worker_that_fails_unexpectedly_continues_after_a_pause_and_syncs_its_pod() -> None:
    clock, done = FakeClock(), list[str]()
    made = workers(clock, done, asyncio.Event().wait)  # type: ignore[arg-type]
    released: list[str] = []
    made._pods.resources_released = released.append  # type: ignore[method-assign]
    made._deps.writer = made._deps.startup = SimpleNamespace(forget=lambda uid: None)  # type: ignore[misc,assignment]
    made._active = list  # type: ignore[method-assign]
    running = asyncio.create_task(made.run())
    await settle()
    failing, other = FailingWorker("failing", FAILURES), FailingWorker("other", 0)
    for each in (failing, other):
        made._start(each)  # type: ignore[arg-type]
    await settle()
    for run in range(1, FAILURES + 1):
        assert failing.runs == run and not failing.requested.is_set()
        await clock.advance(UNEXPECTED_SECONDS / 2)
        assert failing.runs == run, "the pause"
        await clock.advance(UNEXPECTED_SECONDS / 2)
        assert failing.runs == run + 1 and failing.requested.is_set(), "what it had read may be lost"
        failing.requested.clear()
    assert set(made._workers) == {"failing", "other"} and other.runs == 1 and released == []
    failing.ended.set()
    await settle()
    assert set(made._workers) == {"other"} and released == ["failing"] and not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_unforeseen_error_of_the_group_costs_no_worker() -> None:
    clock, done = FakeClock(), list[str]()
    made = workers(clock, done, asyncio.Event().wait)  # type: ignore[arg-type]
    running = asyncio.create_task(loops.Loops(clock).run("pods", made.run))
    await settle()
    before, meanwhile = FailingWorker("before", 0), FailingWorker("meanwhile", 0)
    made._active = list  # type: ignore[method-assign]
    made._start(before)  # type: ignore[arg-type]
    await settle()

    async def fail() -> None:
        raise RuntimeError("unforeseen")

    assert made._group is not None
    made._group.create_task(fail())
    await settle()
    made._start(meanwhile)  # type: ignore[arg-type]
    assert meanwhile.runs == 0
    await clock.advance(loops.FIRST_RETRY)
    assert before.runs == 2 and before.requested.is_set() and meanwhile.runs == 1 and not running.done()
    assert set(made._workers) == {"before", "meanwhile"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_slices_of_registered_drivers_outlast_an_unforeseen_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, wiped, followed = FakeClock(), list[str](), list[str]()
    drivers = DRADrivers(SimpleNamespace(), "node-1", clock=clock)  # type: ignore[arg-type]

    async def wipe(name: str, after: float) -> None:
        await clock.sleep(after)
        wiped.append(name)

    async def follow(driver: Any, version: str) -> None:
        followed.append(driver.name)
        await asyncio.Event().wait()

    monkeypatch.setattr(drivers, "_wipe", wipe)
    monkeypatch.setattr(drivers, "_follow", follow)
    running = asyncio.create_task(loops.Loops(clock).run("claims' drivers", drivers.run))
    await clock.advance(1)
    for name in ("stays", "leaves"):
        await drivers.register(name, f"/run/{name}.sock", ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"])
    await drivers.deregister("leaves", "/run/leaves.sock")
    await settle()

    async def fail() -> None:
        raise RuntimeError("unforeseen")

    assert drivers._group is not None
    drivers._group.create_task(fail())
    await clock.advance(2 * WIPE_SECONDS)
    assert wiped == ["", "leaves"] and followed == ["stays", "stays"] and not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await drivers.deregister("stays", "/run/stays.sock")
