"""Resizes that a node rejects or defers, and their events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.lifecycle import resize
from agent.lifecycle.resize import PendingResize, ResizeError
from agent.pods import resize_admission
from agent.pods.pod_requests import PodRequests
from agent.pods.resize_events import ResizeEvents
from kube.api import core_v1
from tests.unit.agent.pods import pod


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


@pytest.mark.parametrize(
    ("more", "swaps", "held"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}, True, False),
    ],
)
def test_containers_that_may_swap_are_not_resized_under_way(more: Any, swaps: bool, held: bool) -> None:
    found = resize_admission.pending_for_swap(pod(sized(**more)), lambda container: swaps)
    assert (found == PendingResize("Infeasible", "In-place resize of containers with swap is not supported")) is held


@pytest.mark.parametrize(
    ("before", "after", "used", "refused"),
    [("2Gi", "1Gi", 1 << 30, True), ("2Gi", "1Gi", 1 << 29, False), ("1Gi", "2Gi", 1 << 31, False)],
)
def test_a_limit_does_not_go_below_what_is_used(before: str, after: str, used: int, refused: bool) -> None:
    container = core_v1.Container(name="main", resources=core_v1.ResourceRequirements(limits={"memory": after}))
    actuated = core_v1.ResourceRequirements(limits={"memory": before})
    if refused:
        with pytest.raises(ResizeError) as error:
            resize.check_use(container, actuated, used)
        text = 'attempting to set container "main" memory limit (1073741824) below current usage (1073741824)'
        assert str(error.value) == text
    else:
        resize.check_use(container, actuated, used)


def test_every_step_of_a_resize_is_told_once() -> None:
    told: list[tuple[str, str, str]] = []
    story = ResizeEvents(lambda *event: told.append(event))
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
    assert [(kind, reason) for kind, reason, _ in told] == [
        ("Warning", "ResizeDeferred"),
        ("Normal", "ResizeStarted"),
        ("Normal", "ResizeCompleted"),
    ]
    what, _, summary = told[0][2].partition(": ")
    assert what == "Pod resize OutOfcpu"
    assert json.loads(summary) == {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        "generation": 2,
        "error": "too little",
    }
    assert told[1][2].startswith('Pod resize started: {"containers":[{"name":"main","resources":')
    story.record(given, differs=True, pending=PendingResize("Infeasible", "never"), settled=True)
    assert told[-1][:2] == ("Warning", "ResizeInfeasible") and told[-1][2].startswith("Pod resize Infeasible: ")
