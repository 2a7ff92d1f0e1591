"""A simulated pod: a kubelet's decisions on containers that are scripts, in a time that the test sets."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from kube.api import core_v1
from kube.client import Client
from wherry.testing.nodes.mounts import Mounts
from wherry.testing.nodes.pod import SimulatedPod
from wherry.testing.nodes.scripts import Exit, Pull, PullError, Run, Scripts, Start
from wherry.testing.nodes.stepped import Stepped

IP = "10.244.0.7"


class SteppedClock:
    """A clock that the test advances."""

    steady = False

    def __init__(self) -> None:
        self.elapsed = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    boottime = monotonic

    async def sleep(self, seconds: float) -> None:
        self.elapsed += seconds

    async def sleep_deferrable(self, seconds: float) -> None:
        await self.sleep(seconds)


class References:
    """ConfigMaps and Secrets by name."""

    def __init__(self) -> None:
        self.config_maps: dict[str, dict[str, str]] = {}

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        found = self.config_maps.get(name)
        return core_v1.ConfigMap(data=found) if found is not None else None

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        return None


class Site:
    """A pod on a node, with a script for its containers."""

    def __init__(self, *steps: Any, container: str = "*", **spec: Any) -> None:
        self.clock, scripts = SteppedClock(), Scripts()
        if steps:
            scripts.add("web", steps, container)
        spec = {"restartPolicy": "Always", "containers": [{"name": "main", "image": "nginx"}], **spec}
        body = {"metadata": {"name": "web", "namespace": "default", "uid": "u1"}, "spec": spec}
        self.references = References()
        self.pod = SimulatedPod(
            msgspec.convert(body, core_v1.Pod),
            scripts,
            self.clock,
            mounts=Mounts(self.references, Client(cast(Any, None))),
            references=self.references,
            addresses=lambda: (IP,),
            host_addresses=("10.0.0.1",),
        )
        self.events: list[str] = []
        self.stepped: Stepped = self.step()

    def step(self) -> Stepped:
        with pytest.raises(StopIteration):
            self.pod.mount().send(None)  # it does not wait: nothing is read from the API
        self.stepped = self.pod.step()
        self.pod.reported(self.stepped.status)
        self.events += [f"{event.reason}: {event.message}" for event in self.stepped.events]
        return self.stepped

    def run(self, seconds: float) -> Stepped:
        """Let so much time pass, with a step whenever one is due."""
        end = self.now() + seconds
        while self.stepped.wake_at is not None and self.stepped.wake_at <= end:
            self.clock.elapsed += max(0.0, self.stepped.wake_at - self.now())
            self.step()
        self.clock.elapsed += end - self.now()
        return self.step()

    def now(self) -> float:
        return self.clock.now().timestamp()

    def delete(self, grace: int = 30) -> Stepped:
        metadata = msgspec.structs.replace(
            self.pod.pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=grace
        )
        self.pod.pod = msgspec.structs.replace(self.pod.pod, metadata=metadata)
        return self.step()

    def state(self, index: int = 0) -> core_v1.ContainerState:
        found = self.stepped.status.container_statuses[index].state
        assert found is not None
        return found

    def condition(self, type: str) -> str:
        return next(each.status for each in self.stepped.status.conditions if each.type == type)


def test_a_pod_without_a_script_runs_and_is_ready_at_once() -> None:
    site = Site()
    assert (site.stepped.status.phase, site.stepped.status.pod_ip, site.condition("Ready")) == ("Running", IP, "True")
    assert site.stepped.wake_at is None


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_pod_that_is_not_restarted_ends_with_its_exit_code(code: int, phase: str) -> None:
    site = Site(Exit(code, after=5), restartPolicy="Never")
    assert site.stepped.status.phase == "Running"
    site.run(5)
    assert site.stepped.status.phase == phase
    assert site.state().terminated is not None and site.state().terminated.exit_code == code


def test_a_container_that_exits_at_once_is_backed_off_twice_as_long_each_time() -> None:
    site = Site(Exit(1))
    starts = []
    for _ in range(6):
        starts.append((round(site.now()), site.stepped.status.container_statuses[0].restart_count))
        assert site.stepped.wake_at is not None
        site.run(site.stepped.wake_at - site.now())
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(starts)]
    assert gaps == [10, 20, 40, 80, 160]
    waiting = site.state().waiting
    assert waiting is not None and waiting.reason == "CrashLoopBackOff"
    assert any("Back-off restarting failed container main" in event for event in site.events)


def test_the_steps_of_a_script_follow_each_other_and_the_last_is_repeated() -> None:
    site = Site(Exit(1), Exit(2), Run())
    assert site.stepped.status.container_statuses[0].restart_count == 1  # the first restart is without delay
    site.run(10)
    status = site.stepped.status.container_statuses[0]
    assert status.restart_count == 2 and status.ready
    assert status.last_state is not None and status.last_state.terminated is not None
    assert status.last_state.terminated.exit_code == 2


def test_a_callable_decides_on_the_attempt_and_the_image() -> None:
    seen: list[Start] = []

    def decide(start: Start) -> Run | Exit:
        seen.append(start)
        return Run() if start.attempt else Exit(7)

    site = Site(decide)
    assert [(start.pod, start.container, start.image, start.attempt) for start in seen] == [
        ("web", "main", "nginx", 0),
        ("web", "main", "nginx", 1),
    ]
    assert site.state().running is not None


def test_readiness_comes_late_goes_and_comes_back() -> None:
    site = Site(Run(ready_after=20))
    assert site.condition("Ready") == "False"
    site.run(20)
    assert site.condition("Ready") == "True"
    site.pod.set_ready(ready=False)
    site.step()
    assert (site.condition("Ready"), site.stepped.status.phase) == ("False", "Running")
    site.pod.set_ready(ready=True)
    site.step()
    assert site.condition("Ready") == "True"


def test_a_slow_pull_delays_the_start_and_a_failed_one_backs_off() -> None:
    site = Site(Pull(30), PullError("manifest unknown"), Run())
    assert site.stepped.status.phase == "Pending"
    site.run(29)
    assert site.stepped.status.phase == "Pending"
    site.run(1)
    waiting = site.state().waiting
    assert waiting is not None and (waiting.reason, waiting.message) == ("ErrImagePull", "manifest unknown")
    site.run(2)
    waiting = site.state().waiting
    assert waiting is not None and waiting.reason == "ImagePullBackOff"
    assert waiting.message == 'Back-off pulling image "nginx": ErrImagePull: manifest unknown'
    site.run(8)
    assert site.stepped.status.phase == "Running"


def test_init_containers_run_one_after_another_before_the_others() -> None:
    inits = [{"name": "one", "image": "a"}, {"name": "two", "image": "b"}]
    site = Site(Exit(0, after=5), container="[ot]*", initContainers=inits)
    names = [(s.name, s.state.running is not None) for s in site.stepped.status.init_container_statuses if s.state]
    assert names == [("one", True), ("two", False)]
    site.run(5)
    assert site.stepped.status.phase == "Pending"
    site.run(5)
    assert site.stepped.status.phase == "Running"


def test_a_liveness_probe_that_fails_restarts_the_container() -> None:
    probe = {"httpGet": {"path": "/", "port": 80}}
    site = Site(Run(unhealthy_after=10), Run(), containers=[{"name": "main", "image": "x", "livenessProbe": probe}])
    site.run(10)
    assert site.stepped.status.container_statuses[0].restart_count == 1
    assert any("Liveness probe failed" in event for event in site.events)


@pytest.mark.parametrize(("needed", "grace", "seconds", "code"), [(5, 30, 5, 0), (60, 30, 30, 137), (60, 0, 0, 137)])
def test_a_deleted_pod_gets_its_grace_period(needed: float, grace: int, seconds: float, code: int) -> None:
    site = Site(Run(stop_seconds=needed))
    site.delete(grace)
    if seconds:
        assert not site.stepped.delete
        site.run(seconds - 1)
        assert not site.stepped.delete
        site.run(1)
    assert site.stepped.delete
    ended = site.state().terminated
    assert ended is not None and ended.exit_code == code


def test_a_sidecar_is_stopped_after_the_others() -> None:
    sidecar = {"name": "proxy", "image": "p", "restartPolicy": "Always"}
    site = Site(Run(stop_seconds=10), initContainers=[sidecar])
    site.delete()
    site.run(10)
    proxy = site.stepped.status.init_container_statuses[0].state
    assert site.state().terminated is not None and proxy is not None and proxy.running is not None
    site.run(10)
    assert site.stepped.delete


def test_containers_start_in_a_new_sandbox_after_a_power_failure() -> None:
    site = Site()
    site.pod.lose_power()
    site.step()
    status = site.stepped.status.container_statuses[0]
    assert status.restart_count == 1 and status.state is not None and status.state.running is not None


def test_a_pod_past_its_deadline_fails_and_its_containers_are_stopped() -> None:
    site = Site(activeDeadlineSeconds=60)
    site.run(61)
    assert (site.stepped.status.phase, site.stepped.status.reason) == ("Failed", "DeadlineExceeded")
    assert site.stepped.delete is False


def test_a_killed_container_shows_the_reason_and_is_restarted() -> None:
    site = Site()
    assert site.pod.instances.kill("main", 137, "OOMKilled")
    site.step()
    status = site.stepped.status.container_statuses[0]
    assert status.restart_count == 1 and status.last_state is not None and status.last_state.terminated is not None
    assert status.last_state.terminated.reason == "OOMKilled"
    assert not site.pod.instances.kill("other")
