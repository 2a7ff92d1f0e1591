"""Order of the steps of a resize: a cgroup is never smaller than what is in it, and what is incomplete is repeated."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agent.cgroups.cgroupfs import Limits
from agent.lifecycle import Resize
from agent.lifecycle.resize import Actuated, inherited
from agent.pods import setup
from agent.pods.allocation import Size
from agent.pods.state import RESIZE, PodState
from agent.pods.steps.resize import actuate, read_actuated, record_size, set_actuated
from cri.errors import CRIError, UnimplementedError
from kube.api import core_v1
from tests.support.clock import FakeClock
from tests.unit.agent.pods import pod, record, runtime

GIB = 1 << 30


class Node:
    """Cgroups and a runtime that record each change; `refuse` is raised by the change of that name."""

    def __init__(self, before: core_v1.Pod, wanted: core_v1.Pod) -> None:
        self.steps: list[Any] = []
        self.refuse: dict[str, Exception] = {}
        self.current, self.used = Limits(), 0
        self.recorded: dict[str, Size] = {}
        state = PodState(before, static=False, rejection=None, allocated=wanted, clock=FakeClock(), back_off_max=300.0)
        state.runtime = runtime(*(record(c.name) for c in before.spec.containers))
        together = before.spec.resources
        sizes = {f"{c.name}-0": inherited(c.resources, together) for c in before.spec.containers}
        state.resize.actuated = Actuated(sizes, together)
        self.events: list[str] = []
        self.ctx: Any = SimpleNamespace(
            state=state,
            deps=SimpleNamespace(
                config=SimpleNamespace(cgroups_per_qos=True, cpu_cfs_quota=True, cpu_cfs_period=0.1, pod_pids_limit=-1),
                managers=SimpleNamespace(has_exclusive_cpus=lambda *_: False),
                cgroups=SimpleNamespace(
                    fs=SimpleNamespace(read=lambda _: self.current, memory_used=lambda _: self.used),
                    pod_path=lambda _: "pod",
                    apply=self._apply,
                ),
                runtime=SimpleNamespace(client=SimpleNamespace(runtime=self)),
                resources=SimpleNamespace(
                    actuated=SimpleNamespace(put=self.recorded.__setitem__, of=self.recorded.get, try_save=self._save)
                ),
            ),
            reporter=SimpleNamespace(resize_events=SimpleNamespace(failed=lambda _, error: self.events.append(error))),
        )

    def _step(self, name: str, *what: Any) -> None:
        if name in self.refuse:
            raise self.refuse[name]
        self.steps.append((name, *what))

    async def _apply(self, path: str, limits: Limits, *, strict: bool) -> None:
        assert path == "pod" and strict
        self._step("pod", limits.cpu_quota, limits.memory)
        self.current = limits

    async def update_pod_sandbox_resources(self, sandbox_id: str, *, overhead: Any, resources: Any) -> None:
        self._step("runtime", resources.cpu_quota, resources.memory_limit_in_bytes)

    async def update_container_resources(self, container_id: str, resources: Any) -> None:
        self._step(container_id)

    async def container_stats(self, container_id: str) -> Any:
        number = SimpleNamespace(value=self.used)
        return SimpleNamespace(memory=SimpleNamespace(usage_bytes=number, working_set_bytes=number))

    async def _save(self, uid: str) -> None:
        self.steps.append(("saved",))


@pytest.fixture(autouse=True)
def _plain_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "make_resources", lambda *_, **__: None)


def whole(cpu: str, memory: str) -> core_v1.Pod:
    return pod("a", "b", resources={"limits": {"cpu": cpu, "memory": memory}})


CHANGES = (Resize("a-0", "a"), Resize("b-0", "b"))


async def test_a_pod_grows_before_its_containers_and_shrinks_after_them() -> None:
    node = Node(whole("1", "4Gi"), whole("2", "1Gi"))
    node.current = Limits(cpu_quota=100_000, memory=4 * GIB)
    assert await actuate(node.ctx, CHANGES)
    assert node.steps == [
        ("runtime", 200_000, GIB),
        ("pod", 200_000, 4 * GIB),
        ("a-0",),
        ("b-0",),
        ("pod", 200_000, GIB),
        ("saved",),
    ]
    wanted = core_v1.ResourceRequirements(limits={"cpu": "2", "memory": "1Gi"})
    assert node.recorded == {"uid-1": Size({"a": wanted, "b": wanted}, wanted)}
    assert not node.ctx.state.resizing and not await actuate(node.ctx, ())


async def test_a_cgroup_without_a_limit_gets_one_at_the_end() -> None:
    node = Node(pod("a", "b"), whole("2", "1Gi"))
    assert await actuate(node.ctx, CHANGES)
    assert [step for step in node.steps if step[0] == "pod"] == [("pod", 0, 0), ("pod", 200_000, GIB)]


async def test_nothing_changes_where_more_memory_is_used_than_the_limit_allows() -> None:
    node = Node(whole("1", "4Gi"), whole("1", "1Gi"))
    node.current, node.used = Limits(cpu_quota=100_000, memory=4 * GIB), 2 * GIB
    assert not await actuate(node.ctx, CHANGES)
    state, error = node.ctx.state, "attempting to set pod memory limit (1073741824) below current usage (2147483648)"
    assert not node.steps and state.resize.error.startswith(f"cannot decrease memory limits: [{error}, attempting")
    assert node.events == [state.resize.error] and state.resizing and state.step_back_off.waits(RESIZE)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("runtime", CRIError("a plugin refuses")),
        ("b-0", CRIError("no")),
        ("pod", OSError(16, "Device or resource busy")),
    ],
)
async def test_an_incomplete_resize_is_repeated_also_by_the_next_agent(step: str, error: Exception) -> None:
    node = Node(whole("1", "1Gi"), whole("2", "2Gi"))
    node.refuse[step] = error
    assert not await actuate(node.ctx, CHANGES) and node.recorded == {}
    state = node.ctx.state
    assert state.resizing and state.resize.error == str(error)
    state.runtime = state.runtime.with_container(replace(record("b", n=1), id="b-1"))
    await record_size(node.ctx, state.resize.allocated.spec.containers[1])
    set_actuated(node.ctx, state.resize.allocated.spec.containers[1], "b-1")
    assert node.recorded["uid-1"].containers.keys() == {"b"}, "only of the container that was started meanwhile"
    node.refuse.clear()
    state.step_back_off.succeeded(RESIZE)
    assert await actuate(node.ctx, CHANGES[:1])
    assert not state.resizing and node.recorded["uid-1"].containers.keys() == {"a", "b"}


@pytest.mark.parametrize(
    "error", [UnimplementedError("unknown method"), CRIError("UpdatePodSandboxResources is not implemented yet")]
)
async def test_a_runtime_need_not_be_interested(error: CRIError) -> None:
    node = Node(whole("1", "1Gi"), whole("2", "1Gi"))
    node.refuse["runtime"] = error
    assert await actuate(node.ctx, CHANGES)


async def test_limits_that_an_earlier_agent_recorded_without_the_inherited_ones_are_no_difference() -> None:
    node = Node(whole("1", "1Gi"), whole("1", "1Gi"))
    node.recorded["uid-1"] = Size(
        {"a": core_v1.ResourceRequirements(), "b": core_v1.ResourceRequirements()}, whole("1", "1Gi").spec.resources
    )
    node.ctx.state.resize.actuated = await read_actuated(node.ctx)
    assert not node.ctx.state.resizing
