"""The burstable class has the CPU shares of what its pods were granted, not of what a resize that is held asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent.pods.resize import Hold
from agent.pods.state import PodState
from agent.pods.sync import _hold_resize
from agent.pods.taken import Taken
from agent.records import PodRuntime
from kube.api import core_v1
from tests.unit.agent.pods import pod


def sized(cpu: str) -> core_v1.Pod:
    return pod({"name": "main", "resources": {"requests": {"cpu": cpu}}})


class Worker(SimpleNamespace):
    """As much of a pod's worker as a resize looks at."""

    cpu_request: Any = PodState.cpu_request

    @property
    def taken(self) -> Taken:
        return Taken.of(self.allocated)

    def wanted(self, newer: core_v1.Pod, held: Hold | None) -> None:
        self.pod, self.hold_resize = newer, lambda _: held
        _hold_resize(self)  # type: ignore[arg-type]


def test_a_resize_counts_once_it_is_granted() -> None:
    before, changes = sized("100m"), list[int]()
    notes = SimpleNamespace(allocated=SimpleNamespace(put=lambda *_: None))
    worker = Worker(
        uid="uid-1",
        allocated=before,
        runtime=PodRuntime(),
        applied={},
        tools=SimpleNamespace(resources=notes),
        resize_story=SimpleNamespace(look=lambda *_, **__: None),
    )
    worker.size_changed = lambda: changes.append(worker.cpu_request)
    worker.wanted(sized("64"), Hold("Infeasible", "Node didn't have enough capacity"))
    assert (worker.cpu_request, changes) == (100, [])
    worker.wanted(sized("200m"), None)
    assert (worker.cpu_request, changes) == (200, [200])
    worker.wanted(sized("200m"), None)
    assert changes == [200]
