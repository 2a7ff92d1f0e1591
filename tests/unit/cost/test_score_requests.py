"""Requests that count in scores, cpu and memory, cost nothing for the other resources that a pod names.

The scheduler sums them for each pod on the event loop, and a pod of 1 MiB names 14 000 resources.
"""

from __future__ import annotations

from typing import Any

import pytest

from control.scheduler.podinfo import UNSET
from kube import serialize
from kube.api import core_v1
from kube.pod_requests import pod_requests
from tests.support.cost import Lines

FEW, MANY = 10, 1000


def pod(where: str, names: int) -> core_v1.Pod:
    """Return a pod that names resources in one place."""
    given = {"cpu": "1"} | {f"example.org/r{number}": "1" for number in range(names)}
    container: dict[str, Any] = {"name": "a", "image": "a"}
    spec: dict[str, Any] = {"containers": [container]}
    status: dict[str, Any] = {}
    if where == "overhead":
        spec["overhead"] = given
    elif where == "the pod":
        spec["resources"], status["resources"] = {"requests": given}, {"requests": given}
    else:
        container["resources"] = {"requests": given, "limits": given}
    if where == "a resized container":
        status["containerStatuses"] = [{"name": "a", "allocatedResources": given, "resources": {"requests": given}}]
    return serialize.convert({"metadata": {"name": "a"}, "spec": spec, "status": status}, core_v1.Pod)


@pytest.mark.parametrize("where", ["a container", "a resized container", "the pod", "overhead"])
def test_the_requests_that_count_in_scores_cost_nothing_for_other_resources(where: str) -> None:
    lines = []
    for names in (FEW, MANY):
        made = pod(where, names)
        pod_requests(made, UNSET)  # quantities are cached
        with Lines() as counted:
            found = pod_requests(made, UNSET)
        lines.append(counted.count)
        assert (found["cpu"], found.keys()) == (1100 if where == "overhead" else 1000, UNSET.keys())
    assert lines[1] == lines[0]
