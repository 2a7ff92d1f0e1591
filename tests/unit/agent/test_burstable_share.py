"""The burstable class has the CPU shares of its pods' allocated sizes, not of what a pending resize asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent.lifecycle.resize import Actuated, PendingResize
from agent.pods.state import PodState
from agent.pods.steps.sync import _check_resize
from kube.api import core_v1
from tests.support.clock import FakeClock
from tests.unit.agent.pods import pod


def sized(cpu: str) -> core_v1.Pod:
    return pod({"name": "main", "resources": {"requests": {"cpu": cpu}}})


class Context(SimpleNamespace):
    """As much of a pod's context as a resize looks at."""

    def want(self, newer: core_v1.Pod, pending: PendingResize | None) -> None:
        self.state.pod, self.pending_resize = newer, lambda _: pending
        _check_resize(self)  # type: ignore[arg-type]


def test_a_resize_counts_once_it_is_allocated() -> None:
    before, changes = sized("100m"), list[int]()
    state = PodState(before, static=False, rejection=None, allocated=before, clock=FakeClock(), back_off_max=300.0)
    state.resize.actuated = Actuated({})
    ignored: Any = lambda *_, **__: None  # noqa: E731
    context = Context(
        state=state,
        deps=SimpleNamespace(resources=SimpleNamespace(allocated=SimpleNamespace(put=ignored))),
        reporter=SimpleNamespace(resize_events=SimpleNamespace(record=ignored)),
        size_changed=lambda: changes.append(state.cpu_request),
    )
    context.want(sized("64"), PendingResize("Infeasible", "Node didn't have enough capacity"))
    assert (state.cpu_request, changes) == (100, [])
    context.want(sized("200m"), None)
    assert (state.cpu_request, changes) == (200, [200])
    context.want(sized("200m"), None)
    assert changes == [200]
