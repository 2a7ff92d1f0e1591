"""Lookups of containers by name: a pod of many takes no longer for each of them.

Steps are lines of Python and comparisons of texts, as with large objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import runtime_records
from agent.lifecycle import Situation, find_container, plan, policy_of, termination_waves
from agent.pods.allocation import Size, with_size
from agent.pods.crash_loop import CrashLoopBackOff
from agent.pods.steps.record_updates import find_leftovers, replace_records
from agent.podspec import environment
from agent.runtime import Runtime
from agent.runtime_records import PodRuntime
from agent.usage import collector
from cri import messages
from kube.api import core_v1
from kube.clock import SYSTEM
from tests.unit.agent.pods import pod
from tests.unit.cost.test_large_objects import COUNTS, STEEPEST, Steps, Text
from tests.unit.cost.test_large_pods import Objects, numbered, ran


def named(number: int) -> dict[str, object]:
    return {"name": f"c{number}", "image": "i"}


def sidecar(number: int) -> dict[str, object]:
    return {**named(number), "restartPolicy": "Always"}


def back_off(count: int) -> Callable[[], object]:
    given = pod(*numbered(count, named))
    now = SYSTEM.now().timestamp()
    runtime = ran(given, "exited")
    runtime = replace(runtime, containers=tuple(replace(c, finished_at=now) for c in runtime.containers))
    crash_loop = CrashLoopBackOff(SYSTEM, 300.0)

    def sync() -> None:
        for container in given.spec.containers:
            crash_loop.count(given, container.name, runtime.latest(container.name))
        situation = Situation(given, runtime, now, restart_at=partial(crash_loop.restart_at, given))
        for name in plan(situation).backing_off:
            crash_loop.waiting(given, name)
            crash_loop.event(given, name, runtime.latest(name))

    return sync


def resources(count: int) -> Callable[[], object]:
    def variable(number: int) -> dict[str, object]:
        last = {"containerName": f"c{count - 1}", "resource": "limits.cpu"}
        return {"name": f"V{number}", "valueFrom": {"resourceFieldRef": last}}

    given = pod(*numbered(count, named))
    given.spec.containers[0] = pod({"name": "c0", "env": numbered(count, variable)}).spec.containers[0]
    around = environment.EnvironmentSources(Objects(), {}, allocatable={"cpu": "4"})
    return lambda: environment.environment(given, given.spec.containers[0], around)


def in_turn(count: int) -> Callable[[], object]:
    """Return look-ups in several pods alternately, one of which has another size than its spec."""
    pods = [pod(*numbered(count, named), init=[sidecar(count)], metadata={"uid": f"u{n}"}) for n in range(3)]
    pods.append(with_size(pods[0], Size({})))

    def look_up() -> None:
        for number in range(count):
            for each in pods:
                found = find_container(each, f"c{number}")
                assert found is not None and policy_of(each, cast(core_v1.Container, found[0])) == "Always"

    return look_up


def waves(count: int) -> Callable[[], object]:
    given = pod(init=numbered(count, sidecar))
    runtime = ran(given, "running")
    runtime = replace(runtime, containers=tuple(replace(c, name=Text(c.name)) for c in runtime.containers))
    return lambda: termination_waves(given, runtime)


def limits(count: int) -> Callable[[], object]:
    given: core_v1.Pod = pod(*numbered(count, named))
    return lambda: [collector._memory_limit(given, container.name) for container in given.spec.containers]


def exited(count: int) -> PodRuntime:
    """Return a runtime with ended init containers, listed oldest first."""
    given = pod(init=numbered(count, named))
    found = ran(given, "exited")
    return PodRuntime.of(
        found.sandboxes, [replace(c, id=Text(c.id), created_at=float(-n)) for n, c in enumerate(found.containers)]
    )


def context(known: PodRuntime, **deps: object) -> Any:
    volumes = SimpleNamespace(pod_dir=lambda uid: Path("/nowhere"))
    state = SimpleNamespace(pod=pod(), uid="u", runtime=known, terminating=False, runtime_uncertain=False)
    return SimpleNamespace(state=state, deps=SimpleNamespace(volumes=volumes, **deps))


def ended(work: Coroutine[Any, Any, object]) -> None:
    """Run what waits for nothing."""
    with pytest.raises(StopIteration):
        work.send(None)


class Listing:
    """A runtime's lists."""

    def __init__(self, known: PodRuntime) -> None:
        labels = {runtime_records.POD_UID: "u", runtime_records.POD_NAME: "p", runtime_records.POD_NAMESPACE: "default"}
        self.containers = [
            messages.Container(
                id=c.id, pod_sandbox_id="s0", state=messages.ContainerState.CONTAINER_EXITED, labels=labels
            )
            for c in known.containers
        ]

    async def list_pod_sandboxes(self) -> list[messages.PodSandbox]:
        return []

    async def list_containers(self) -> list[messages.Container]:
        return self.containers


def relist(count: int) -> Callable[[], object]:
    known = exited(count)
    runtime = Runtime(cast(Any, SimpleNamespace(runtime=Listing(known))))
    return lambda: asyncio.run(runtime.pods({"u": known}))


def taken_over(count: int) -> Callable[[], object]:
    return lambda: replace_records(context(exited(count)), exited(count))


def leftovers(count: int) -> Callable[[], object]:
    found = exited(count)

    async def of_pod(uid: str) -> PodRuntime:
        return found

    given = context(PodRuntime(), runtime=SimpleNamespace(of_pod=of_pod))
    return lambda: ended(find_leftovers(given))


@pytest.mark.parametrize("prepare", [back_off, resources, in_turn, waves, limits, relist, taken_over, leftovers])
def test_what_is_done_for_each_container_is_linear_in_their_number(
    prepare: Callable[[int], Callable[[], object]],
) -> None:
    def steps(count: int) -> int:
        work = prepare(count)
        with Steps() as lines:
            work()
        return lines.count

    steps(COUNTS[-1])  # the hashes are kept
    few, more, many = (steps(count) for count in COUNTS)
    assert few < more < many and (many - more - 2 * (more - few)) / (6 * COUNTS[0] ** 2) < STEEPEST
