"""Reasons for which pods are not Ready, as `wherry status` counts them."""

from __future__ import annotations

from typing import Any

import pytest

from kube import serialize
from kube.api import core_v1
from wherry.pod_problems import NotReady, not_ready, reason_of


def pod(name: str = "p", *, deleted: bool = False, **status: Any) -> core_v1.Pod:
    metadata = {"name": name, "namespace": "default"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return serialize.convert({"metadata": metadata, "status": status}, core_v1.Pod)


def condition(kind: str, status: str, reason: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason}


SCHEDULED, WAITS = condition("PodScheduled", "True"), condition("Ready", "False", "ContainersNotReady")


def container(**state: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def waiting(reason: str) -> list[dict[str, Any]]:
    return [container(waiting={"reason": reason})]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (pod(phase="Running", conditions=[condition("Ready", "True")]), ""),
        (pod(phase="Succeeded", conditions=[condition("Ready", "False", "PodCompleted")]), ""),
        (pod(phase="Pending"), "Pending"),
        (pod(phase="Pending", conditions=[condition("PodScheduled", "False", "Unschedulable")]), "Unschedulable"),
        (pod(phase="Pending", conditions=[SCHEDULED]), "ContainerCreating"),
        (
            pod(phase="Pending", conditions=[SCHEDULED], containerStatuses=waiting("ContainerCreating")),
            "ContainerCreating",
        ),
        (
            pod(phase="Pending", conditions=[SCHEDULED], containerStatuses=waiting("ImagePullBackOff")),
            "ImagePullBackOff",
        ),
        (
            pod(phase="Pending", conditions=[SCHEDULED], initContainerStatuses=waiting("CrashLoopBackOff")),
            "CrashLoopBackOff",
        ),
        (pod(phase="Running", conditions=[SCHEDULED, WAITS]), "ContainersNotReady"),
        (
            pod(phase="Running", containerStatuses=[container(terminated={"exitCode": 137, "reason": "OOMKilled"})]),
            "OOMKilled",
        ),
        (pod(phase="Failed", reason="Evicted"), "Evicted"),
        (pod(phase="Failed"), "Failed"),
        (pod(phase="Running", deleted=True), "Terminating"),
    ],
)
def test_a_pod_is_counted_for_what_keeps_it_from_being_ready(found: core_v1.Pod, reason: str) -> None:
    assert reason_of(found) == reason


def test_the_most_frequent_reason_comes_first_with_an_example() -> None:
    pods = [pod(name, phase="Pending") for name in ("b", "a")]
    pods.append(pod("e", phase="Failed", reason="Evicted"))
    pods.append(pod("r", phase="Running", conditions=[condition("Ready", "True")]))
    assert not_ready(pods) == [NotReady("Pending", 2, "default/a"), NotReady("Evicted", 1, "default/e")]
