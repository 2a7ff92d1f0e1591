"""Resizes that a node rejects or defers, and their events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.lifecycle import resize
from agent.lifecycle.resize import Actuated, PendingResize, ResizeError
from agent.pods import resize_admission
from agent.pods.pod_requests import PodRequests
from agent.pods.resize_events import ResizeEvents
from agent.runtime_records import PodRuntime
from kube.api import core_v1
from tests.unit.agent.pods import pod, runtime


def sized(cpu: str = "1", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


@pytest.mark.parametrize(
    ("container", "hold"),
    [
        (sized("500m"), None),
        (
            sized("1500m"),
            PendingResize(
                "Deferred",
                "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
                "OutOfcpu",
            ),
        ),
        (
            sized("3"),
            PendingResize("Infeasible", "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000"),
        ),
    ],
)
def test_what_the_node_cannot_hold_waits_or_is_infeasible(
    container: dict[str, Any], hold: PendingResize | None
) -> None:
    assert (
        resize_admission.pending(pod(container), [PodRequests.of(pod(sized()))], {"cpu": "2", "memory": "8Gi"}) == hold
    )


RESTART = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}


@pytest.mark.parametrize(
    ("wanted", "swaps", "held"),
    [
        (sized(memory="2Gi"), True, True),
        (sized(memory="2Gi"), False, False),
        (sized(cpu="2"), True, False),
        (sized(memory="2Gi", **RESTART), True, False),
    ],
)
def test_containers_that_may_swap_are_not_given_other_memory_under_way(wanted: Any, swaps: bool, held: bool) -> None:
    before = pod({**wanted, **sized()})
    found = resize_admission.pending_for_swap(pod(wanted), before, lambda pod, container: swaps)
    assert (found == PendingResize("Infeasible", "In-place resize of containers with swap is not supported.")) is held


@pytest.mark.parametrize(
    ("before", "after", "shrinks"),
    [("2Gi", "1Gi", True), ("1Gi", "2Gi", False), ("1Gi", "1024Mi", False), ("0", "1Gi", True), ("1Gi", "0", False)],
)
def test_a_first_memory_limit_and_a_lower_one_are_checked(before: str, after: str, shrinks: bool) -> None:
    one, other = (core_v1.ResourceRequirements(limits={"memory": amount}) for amount in (before, after))
    assert resize.shrinks_memory(other, one) is shrinks
    assert not resize.shrinks_memory(other, None)


def test_a_limit_does_not_go_below_what_is_used() -> None:
    resize.check_use({"pod": (1000, 999), 'container "main"': (1000, 0)})
    with pytest.raises(ResizeError) as error:
        resize.check_use({"pod": (1000, 1000), 'container "main"': (1000, 999)})
    text = "attempting to set pod memory limit (1000) below current usage (1000)"
    assert str(error.value) == f"cannot decrease memory limits: {text}"
    with pytest.raises(ResizeError) as error:
        resize.check_use({"pod": (1000, 1000), 'container "main"': (500, 999)})
    other = 'attempting to set container "main" memory limit (500) below current usage (999)'
    assert str(error.value) == f"cannot decrease memory limits: [{text}, {other}]"


def test_a_container_inherits_the_limits_of_cpu_and_memory_that_it_lacks() -> None:
    whole = core_v1.ResourceRequirements(
        limits={"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"}, requests={"cpu": "1"}
    )
    own = core_v1.ResourceRequirements(limits={"cpu": "1"}, requests={"cpu": "500m"})
    assert resize.inherited(own, whole).limits == {"cpu": "1", "memory": "1Gi"}
    assert resize.inherited(own, whole).requests == {"cpu": "500m"}
    assert resize.inherited(None, whole) == core_v1.ResourceRequirements(limits={"cpu": "2", "memory": "1Gi"})
    assert resize.inherited(own, None) is own


def test_a_pods_own_size_is_compared_once_it_has_a_sandbox() -> None:
    wanted = pod(sized(), resources={"limits": {"cpu": "2"}})
    same = core_v1.ResourceRequirements(limits={"cpu": "2000m"})
    assert resize.pod_differs(wanted, runtime(), None) and not resize.pod_differs(wanted, runtime(), same)
    assert not resize.pod_differs(wanted, PodRuntime(), None)
    assert not resize.pod_differs(pod(sized()), runtime(), None)
    assert resize.differs(wanted, runtime(), Actuated({})) and not resize.differs(wanted, runtime(), Actuated({}, same))


def test_every_step_of_a_resize_is_reported_once() -> None:
    reported: list[tuple[str, str, str]] = []
    story = ResizeEvents(lambda *event: reported.append(event))
    given = pod(sized("500m"), metadata={"generation": 2})
    steps: list[dict[str, Any]] = [
        {"differs": False, "pending": None, "settled": True},  # nothing was asked for
        {"differs": True, "pending": PendingResize("Deferred", "too little", "OutOfcpu"), "settled": True},
        {"differs": True, "pending": PendingResize("Deferred", "too little", "OutOfcpu"), "settled": True},
        {"differs": True, "pending": None, "settled": True},
        {"differs": False, "pending": None, "settled": False},  # it restarts
        {"differs": False, "pending": None, "settled": True},
        {"differs": False, "pending": None, "settled": True},
    ]
    for step in steps:
        story.record(given, **step)
    assert [(kind, reason) for kind, reason, _ in reported] == [
        ("Warning", "ResizeDeferred"),
        ("Normal", "ResizeStarted"),
        ("Normal", "ResizeCompleted"),
    ]
    what, _, summary = reported[0][2].partition(": ")
    assert what == "Pod resize OutOfcpu"
    assert json.loads(summary) == {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        "generation": 2,
        "error": "too little",
    }
    assert reported[1][2].startswith('Pod resize started: {"containers":[{"name":"main","resources":')
    story.record(given, differs=True, pending=PendingResize("Infeasible", "never"), settled=True)
    assert reported[-1][:2] == ("Warning", "ResizeInfeasible") and reported[-1][2].startswith("Pod resize Infeasible: ")
    for _ in range(2):
        story.failed(given, "the kernel refuses")
    assert [event[:2] for event in reported[-2:]] == [("Warning", "ResizeInfeasible"), ("Warning", "ResizeError")]
    assert reported[-1][2].startswith("Pod resize error: ") and '"error":"the kernel refuses"' in reported[-1][2]
