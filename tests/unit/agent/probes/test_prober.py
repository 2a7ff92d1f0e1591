import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from agent.interfaces import ProbeOutcome, ProbeTarget
from agent.probes.prober import PodProber
from agent.probes.result import Result, Target, Verdict
from agent.usage import resource_metrics
from cri.runtime_service import RuntimeService
from kube.api import core_v1, meta_v1
from kube.clock import FakeClock
from kube.events import EventRecorder


class World:
    """A prober in virtual time, with answers by container name and the times at which it asked."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.answers: dict[str, Result] = {}
        self.asked: list[tuple[float, str]] = []
        self.changes: list[tuple[float, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.hang = asyncio.Event()
        self.hang.set()
        self.prober = PodProber(
            cast(RuntimeService, None), cast(EventRecorder, self), self._changed, self.clock, self._answer
        )

    async def _answer(self, probe: core_v1.Probe, target: Target) -> Result:
        self.asked.append((self.clock.monotonic(), target.container.name))
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
        return [at for at, asked in self.asked if asked == name]


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


async def test_failures_make_events_and_after_the_threshold_an_outcome() -> None:
    async with running() as world:
        world.answers["main"] = Result(Verdict.FAILURE, "HTTP probe failed with statuscode: 500")
        await world.clock.advance(1)
        world.sync(core_v1.Container(name="main", liveness_probe=_probe(period_seconds=1, failure_threshold=3)))
        await world.clock.advance(1.5)
        assert world.changes == []
        await world.clock.advance(10)
        assert len(world.asked) == 3
        message = "Liveness probe failed: HTTP probe failed with statuscode: 500"
        assert world.events == [("Unhealthy", message, "spec.containers{main}")] * 3
        outcome = world.prober.outcome("id-main")
        assert outcome is not None
        assert outcome.failed == "Liveness"


async def test_probes_are_counted_by_what_they_said_until_the_container_is_gone() -> None:
    async with running() as world:
        container = core_v1.Container(name="main", readiness_probe=_probe(period_seconds=5))
        pod = world.sync(container)
        await world.clock.advance(6)
        world.answers["main"] = Result(Verdict.FAILURE)
        await world.clock.advance(5)
        world.sync(container, pod=pod, ids="next")
        await world.clock.advance(1)
        text = resource_metrics.probes(world.prober.counts)
        labels = 'container="main",namespace="default",pod="pod"'
        for result, number in (("failed", 2), ("successful", 2)):
            shown = f'prober_probe_total{{{labels},pod_uid="uid",probe_type="Readiness",result="{result}"}} {number}\n'
            assert shown in text
        timed = f'{labels},probe_type="Readiness"'
        assert f'prober_probe_duration_seconds_bucket{{{timed},le="0.005"}} 4\n' in text
        assert f'prober_probe_duration_seconds_bucket{{{timed},le="+Inf"}} 4\n' in text
        assert f"prober_probe_duration_seconds_count{{{timed}}} 4\n" in text
        world.prober.stop("uid")
        assert "probe_type" not in resource_metrics.probes(world.prober.counts)


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


async def test_what_is_stopped_is_not_probed_and_says_nothing() -> None:
    async with running() as world:
        await world.clock.advance(1)
        world.hang.clear()
        world.sync(core_v1.Container(name="main", readiness_probe=_probe(period_seconds=1)))
        await world.clock.advance(0.5)
        world.prober.stop("uid")
        world.hang.set()
        await world.clock.advance(10)
        assert (world.times("main"), world.changes, world.events) == ([1], [], [])


async def test_after_the_agents_own_restart_a_container_stays_ready_until_a_probe_says_otherwise() -> None:
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


async def test_while_its_pod_is_deleted_a_container_is_not_condemned() -> None:
    async with running() as world:
        world.answers["main"] = Result(Verdict.FAILURE)
        container = core_v1.Container(name="main", liveness_probe=_probe(failure_threshold=1, initial_delay_seconds=5))
        await world.clock.advance(1)
        pod = world.sync(container)
        pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
        world.sync(container, pod=pod)
        await world.clock.advance(60)
        assert world.asked == []


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
