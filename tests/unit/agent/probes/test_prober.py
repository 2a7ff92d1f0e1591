import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from agent.interfaces import ProbeOutcome, ProbeTarget
from agent.probes import prober
from agent.probes.prober import PodProber
from agent.probes.result import Result, Target, Verdict
from agent.usage import resource_metrics
from cri.runtime_service import RuntimeService
from kube import cpu_time
from kube.api import core_v1, meta_v1
from kube.decisions import Decisions
from kube.events import EventRecorder
from kube.journal import Journal, kind_key
from kube.loops import Loops
from tests.support.clock import FakeClock


class World:
    """A prober in virtual time, with answers by container name and the times at which it asked."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.answers: dict[str, Result] = {}
        self.received: list[tuple[float, str]] = []
        self.changes: list[tuple[float, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.journal = Journal(self.clock)
        self.decisions = Decisions(self.journal, "kubelet")
        self.hang = asyncio.Event()
        self.hang.set()
        self.prober = PodProber(
            cast(RuntimeService, None), cast(EventRecorder, self), self._changed, self.clock, self._answer
        )

    async def _answer(self, probe: core_v1.Probe, target: Target) -> Result:
        self.received.append((self.clock.monotonic(), target.container.name))
        await self.hang.wait()
        return self.answers.get(target.container.name, Result(Verdict.SUCCESS))

    def _changed(self, uid: str) -> None:
        self.changes.append((self.clock.monotonic(), uid))

    def event(self, obj: Any, type: str, reason: str, message: str, *, field_path: str = "") -> None:
        self.events.append((reason, message, field_path))

    def sync(self, *containers: core_v1.Container, pod: core_v1.Pod | None = None, ids: str = "id") -> core_v1.Pod:
        pod = pod or core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name="pod", namespace="default", uid="uid"),
            spec=core_v1.PodSpec(containers=list(containers)),
        )
        now = self.clock.now().timestamp()
        self.prober.sync(pod, "10.0.0.1", [ProbeTarget(c, f"{ids}-{c.name}", now) for c in containers])
        return pod

    def times(self, name: str) -> list[float]:
        return [at for at, requested in self.received if requested == name]


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World()
    task = asyncio.create_task(world.prober.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait({task})


def _probe(**settings: int) -> core_v1.Probe:
    return core_v1.Probe(tcp_socket=core_v1.TCPSocketAction(port=80), **settings)


async def test_the_first_probe_comes_at_once_and_the_next_a_period_later() -> None:
    async with running() as world:
        await world.clock.advance(100)
        world.sync(core_v1.Container(name="main", readiness_probe=_probe(period_seconds=5)))
        await world.clock.advance(12)
        assert world.times("main") == [100, 105, 110]
        assert world.changes == [(100, "uid")]
        assert world.prober.outcome("id-main") == ProbeOutcome()


async def test_the_initial_delay_counts_from_the_containers_start() -> None:
    async with running() as world:
        await world.clock.advance(100)
        world.sync(core_v1.Container(name="main", liveness_probe=_probe(initial_delay_seconds=7)))
        await world.clock.advance(20)
        assert world.times("main") == [107, 117]


@pytest.mark.parametrize("settings", [{"initial_delay_seconds": 2**31 - 1}, {"period_seconds": 2**31 - 1}])
async def test_nothing_is_kept_of_a_pod_that_is_gone_until_its_next_probe_would_be_due(
    settings: dict[str, int],
) -> None:
    async with running() as world:
        await world.clock.advance(100)
        pod = world.sync(core_v1.Container(name="main", liveness_probe=_probe(**settings)))
        kept = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="kept", namespace="default", uid="kept"))
        world.sync(core_v1.Container(name="main", liveness_probe=_probe()), pod=kept, ids="kept")
        await world.clock.advance(1)
        spec = weakref.ref(pod.spec)
        world.prober.stop("uid")
        del pod
        await world.clock.advance(1)
        assert spec() is None and len(world.prober._queue) == 1
        await world.clock.advance(20)
        assert len(world.received) > 2, "the other pod is probed"


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_a_step_of_the_wall_clock_delays_no_first_probe(step: float) -> None:
    async with running() as world:
        await world.clock.advance(100)
        container = core_v1.Container(
            name="main",
            startup_probe=_probe(period_seconds=5),
            readiness_probe=_probe(period_seconds=5, initial_delay_seconds=7),
        )
        world.answers["main"] = Result(Verdict.FAILURE)
        world.sync(container)
        await world.clock.advance(2)
        world.clock.step(step)
        world.answers["main"] = Result(Verdict.SUCCESS)
        await world.clock.advance(20)
        assert len(world.times("main")) >= 3 and world.prober.outcome("id-main") == ProbeOutcome()


async def test_an_agent_that_starts_after_the_clock_was_set_back_keeps_what_was_reported_of_a_container() -> None:
    async with running() as world:
        container = core_v1.Container(name="main", readiness_probe=_probe(period_seconds=5))
        status = core_v1.ContainerStatus(name="main", container_id="containerd://id-main", started=True, ready=True)
        pod = core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name="pod", namespace="default", uid="uid"),
            spec=core_v1.PodSpec(containers=[container]),
            status=core_v1.PodStatus(container_statuses=[status]),
        )
        started = world.clock.now().timestamp() + 3600.0
        world.prober.sync(pod, "10.0.0.1", [ProbeTarget(container, "id-main", started)])
        assert world.prober.outcome("id-main") == ProbeOutcome()
        world.answers["main"] = Result(Verdict.FAILURE)
        await world.clock.advance(1)
        assert world.times("main") == [0]


async def test_failures_make_events_and_after_the_threshold_an_outcome() -> None:
    async with running() as world:
        world.answers["main"] = Result(Verdict.FAILURE, "HTTP probe failed with statuscode: 500")
        await world.clock.advance(1)
        world.sync(core_v1.Container(name="main", liveness_probe=_probe(period_seconds=1, failure_threshold=3)))
        await world.clock.advance(1.5)
        assert world.changes == []
        await world.clock.advance(10)
        assert len(world.received) == 3
        message = "Liveness probe failed: HTTP probe failed with statuscode: 500"
        assert world.events == [("Unhealthy", message, "spec.containers{main}")] * 3
        outcome = world.prober.outcome("id-main")
        assert outcome is not None
        assert outcome.failed == "Liveness"


async def test_probes_are_counted_by_result_until_the_container_is_removed() -> None:
    async with running() as world:
        container = core_v1.Container(name="main", readiness_probe=_probe(period_seconds=5))
        pod = world.sync(container)
        await world.clock.advance(6)
        world.answers["main"] = Result(Verdict.FAILURE)
        await world.clock.advance(5)
        world.sync(container, pod=pod, ids="next")
        await world.clock.advance(1)
        text = resource_metrics.probes(world.prober.metrics)
        labels = 'container="main",namespace="default",pod="pod"'
        for result, number in (("failed", 2), ("successful", 2)):
            shown = f'prober_probe_total{{{labels},pod_uid="uid",probe_type="Readiness",result="{result}"}} {number}\n'
            assert shown in text
        timed = f'{labels},probe_type="Readiness"'
        assert f'prober_probe_duration_seconds_bucket{{{timed},le="0.005"}} 4\n' in text
        assert f'prober_probe_duration_seconds_bucket{{{timed},le="+Inf"}} 4\n' in text
        assert f"prober_probe_duration_seconds_count{{{timed}}} 4\n" in text
        world.prober.stop("uid")
        assert "probe_type" not in resource_metrics.probes(world.prober.metrics)


async def test_a_restarted_container_is_probed_anew() -> None:
    async with running() as world:
        container = core_v1.Container(name="main", liveness_probe=_probe(failure_threshold=1))
        world.answers["main"] = Result(Verdict.FAILURE)
        await world.clock.advance(1)
        pod = world.sync(container)
        await world.clock.advance(1)
        del world.answers["main"]
        world.sync(container, pod=pod, ids="second")
        await world.clock.advance(1)
        assert world.prober.outcome("id-main") is None
        assert world.prober.outcome("second-main") == ProbeOutcome()


async def test_readiness_begins_as_soon_as_the_startup_probe_has_succeeded() -> None:
    async with running() as world:
        world.answers["main"] = Result(Verdict.FAILURE)
        await world.clock.advance(1)
        startup = _probe(period_seconds=2, failure_threshold=30)
        world.sync(core_v1.Container(name="main", startup_probe=startup, readiness_probe=_probe(period_seconds=60)))
        await world.clock.advance(5)
        world.answers["main"] = Result(Verdict.SUCCESS)
        await world.clock.advance(2)
        assert world.times("main") == [1, 3, 5, 7, 7]
        assert world.prober.outcome("id-main") == ProbeOutcome()


async def test_a_slow_probe_does_not_hold_up_the_others_and_is_not_doubled() -> None:
    async with running() as world:
        await world.clock.advance(1)
        world.hang.clear()
        world.sync(*(core_v1.Container(name=name, readiness_probe=_probe(period_seconds=1)) for name in ("a", "b")))
        await world.clock.advance(5)
        assert world.times("a") == world.times("b") == [1]
        world.hang.set()
        await world.clock.advance(0.5)
        assert len(world.times("a")) == 2


async def test_a_stopped_container_is_not_probed_and_emits_no_event() -> None:
    async with running() as world:
        await world.clock.advance(1)
        world.hang.clear()
        world.sync(core_v1.Container(name="main", readiness_probe=_probe(period_seconds=1)))
        await world.clock.advance(0.5)
        world.prober.stop("uid")
        world.hang.set()
        await world.clock.advance(10)
        assert (world.times("main"), world.changes, world.events) == ([1], [], [])


async def test_after_the_agents_own_restart_a_container_stays_ready_until_a_probe_fails() -> None:
    async with running() as world:
        container = core_v1.Container(
            name="main", startup_probe=_probe(), readiness_probe=_probe(period_seconds=10, failure_threshold=1)
        )
        status = core_v1.ContainerStatus(name="main", container_id="containerd://id-main", started=True, ready=True)
        pod = core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name="pod", namespace="default", uid="uid"),
            status=core_v1.PodStatus(container_statuses=[status]),
        )
        world.answers["main"] = Result(Verdict.FAILURE)
        world.prober.sync(pod, "10.0.0.1", [ProbeTarget(container, "id-main", started_at=1.0)])
        assert world.prober.outcome("id-main") == ProbeOutcome()
        await world.clock.advance(10)
        assert world.prober.outcome("id-main") == ProbeOutcome(started=True, ready=False)


async def test_while_its_pod_is_stopped_a_container_is_not_condemned() -> None:
    async with running() as world:
        world.answers["main"] = Result(Verdict.FAILURE)
        container = core_v1.Container(name="main", liveness_probe=_probe(failure_threshold=1, initial_delay_seconds=5))
        await world.clock.advance(1)
        world.prober.end(world.sync(container).metadata.uid)
        await world.clock.advance(60)
        assert world.received == []


async def test_a_probe_whose_call_others_cancelled_is_made_again_after_its_period() -> None:
    async with running() as world:
        world.hang.clear()
        world.hang.wait = lambda: _cancelled_by_others()  # type: ignore[method-assign]
        world.sync(core_v1.Container(name="main", readiness_probe=_probe(period_seconds=5)))
        await world.clock.advance(12)
        assert world.times("main") == [0, 5, 10]


async def _cancelled_by_others() -> None:
    awaited = asyncio.get_running_loop().create_future()
    awaited.cancel()
    await awaited


class CPU:
    """CPU time of the event loop's thread, as a probe's handler takes it."""

    def __init__(self, world: World, seconds: dict[str, float]) -> None:
        self.now, self.world, self.seconds = 0.0, world, seconds
        world.prober._handle = self._answer

    async def _answer(self, probe: core_v1.Probe, target: Target) -> Result:
        self.now += self.seconds[target.container.name] / 2
        await asyncio.sleep(0)
        self.now += self.seconds[target.container.name] / 2
        return await self.world._answer(probe, target)

    def thread_time(self) -> float:
        return self.now


async def test_probes_of_a_namespace_that_take_much_cpu_time_are_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        cpu = CPU(world, {f"c{n}": 0.2 for n in range(20)} | {"cheap": 0.001})
        monkeypatch.setattr(cpu_time, "time", cpu)
        await world.clock.advance(1)
        costly = [core_v1.Container(name=f"c{n}", liveness_probe=_probe(period_seconds=1)) for n in range(20)]
        world.sync(*costly)
        cheap = core_v1.Container(name="cheap", readiness_probe=_probe(period_seconds=1))
        spec = core_v1.PodSpec(containers=[cheap])
        world.sync(
            cheap, pod=core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="other", uid="other"), spec=spec)
        )
        await world.clock.advance(300)
        began = cpu.now
        world.received.clear()
        await world.clock.advance(100)
        assert 8 < cpu.now - began < 12, "a tenth of the time"
        assert len(world.times("cheap")) >= 99
        assert {name for _, name in world.received} == {"cheap", *(f"c{n}" for n in range(20))}
        assert world.events == [] and all(world.prober.outcome(f"id-c{n}") == ProbeOutcome() for n in range(20))


async def test_probes_that_take_little_are_not_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "ITERATION_SECONDS", 1000.0)  # virtual time continues after a few iterations
    async with running() as world:
        monkeypatch.setattr(cpu_time, "time", CPU(world, {f"c{n}": 0.001 for n in range(50)}))
        await world.clock.advance(1)
        world.sync(*(core_v1.Container(name=f"c{n}", readiness_probe=_probe(period_seconds=1)) for n in range(50)))
        await world.clock.advance(200)
        assert len(world.times("c0")) == 201


async def test_probes_that_are_due_at_once_are_spread_over_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        cpu = CPU(world, {f"c{n}": 0.02 for n in range(50)} | {"victim": 0.001})
        monkeypatch.setattr(cpu_time, "time", cpu)
        await world.clock.advance(1)
        world.sync(*(core_v1.Container(name=f"c{n}", readiness_probe=_probe(period_seconds=9)) for n in range(50)))
        victim = core_v1.Container(name="victim", liveness_probe=_probe(period_seconds=9))
        spec = core_v1.PodSpec(containers=[victim])
        world.sync(
            victim, pod=core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="other", uid="other"), spec=spec)
        )
        began, longest = cpu.now, 0.0
        while len(world.received) < 51:
            await asyncio.sleep(0)
            longest, began = max(longest, cpu.now - began), cpu.now
        assert longest <= 0.02 + prober.ITERATION_SECONDS
        names = [name for _, name in world.received]
        assert names.index("victim") < 5, "it waits for one probe of the other namespace at a time"


async def test_after_an_unforeseen_error_the_same_probes_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    loops = Loops(world.clock)
    task = asyncio.create_task(loops.run("probes", world.prober.run))
    world.sync(*(core_v1.Container(name=name, readiness_probe=_probe(period_seconds=5)) for name in ("a", "b")))
    await world.clock.advance(1)
    real, failures = world.prober._start, [RuntimeError("unforeseen"), OSError("unforeseen")]

    def start(*given: Any) -> None:
        if failures:
            raise failures.pop()
        real(*given)

    monkeypatch.setattr(world.prober, "_start", start)
    await world.clock.advance(30)
    assert len(world.times("a")) >= 5 and len(world.times("b")) >= 5 and not task.done()
    assert world.prober.outcome("id-a") == world.prober.outcome("id-b") == ProbeOutcome()
    task.cancel()
    await asyncio.wait({task})
    assert world.prober.outcome("id-a") is None


async def test_the_journal_has_the_probes_that_change_the_state_of_a_container() -> None:
    async with running() as world:
        world.answers["web"] = Result(Verdict.FAILURE, "not yet")
        world.sync(core_v1.Container(name="web", readiness_probe=_probe(period_seconds=1, failure_threshold=2)))
        for answer in (Result(Verdict.SUCCESS, "fine"), Result(Verdict.FAILURE, "refused")):
            await world.clock.advance(5.0)
            world.answers["web"] = answer
        await world.clock.advance(5.0)
        assert [entry.text for entry in world.journal.page([kind_key("", "Pod")], "default", "pod").entries] == [
            "container web became Ready: readiness probe succeeded",
            "container web is not Ready any longer: readiness probe failed: refused",
        ]
        world.answers["app"] = Result(Verdict.FAILURE, "timeout")
        liveness = _probe(period_seconds=1, failure_threshold=2, termination_grace_period_seconds=7)
        world.sync(core_v1.Container(name="app", liveness_probe=liveness))
        await world.clock.advance(5.0)
        *_, last = world.journal.page([kind_key("", "Pod")], "default", "pod").entries
        assert (
            last.text == "container app is to be restarted with a grace period of 7 s: liveness probe failed: timeout"
        )
