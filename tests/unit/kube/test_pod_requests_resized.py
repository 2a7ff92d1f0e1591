"""Resource requests of a pod during a resize: the most of its spec, its allocation and its actual resources."""

from __future__ import annotations

import pytest

from kube.api import core_v1
from kube.pod_requests import allocated_resources, pod_requests


def container(cpu: str, name: str = "c") -> core_v1.Container:
    return core_v1.Container(name=name, resources=core_v1.ResourceRequirements(requests={"cpu": cpu}))


def status(promised: str, has: str) -> core_v1.ContainerStatus:
    return core_v1.ContainerStatus(
        name="c",
        allocated_resources={"cpu": promised},
        resources=core_v1.ResourceRequirements(requests={"cpu": has}),
    )


@pytest.mark.parametrize(
    ("asks", "promised", "has", "infeasible", "counts"),
    [
        ("1", "1", "1", False, 1000),
        ("2", "1", "1", False, 2000),
        ("2", "1", "1", True, 1000),
        ("1", "2", "2", False, 2000),
        ("1", "1", "2", False, 2000),
    ],
)
def test_the_most_counts_but_nothing_that_cannot_be(
    asks: str, promised: str, has: str, infeasible: bool, counts: int
) -> None:
    pending = core_v1.PodCondition(type="PodResizePending", status="True", reason="Infeasible")
    pod = core_v1.Pod(
        spec=core_v1.PodSpec(containers=[container(asks), container("500m", "other")]),
        status=core_v1.PodStatus(
            container_statuses=[status(promised, has)], conditions=[pending] if infeasible else []
        ),
    )
    assert pod_requests(pod) == {"cpu": counts + 500}


@pytest.mark.parametrize(
    ("asks", "promised", "has", "infeasible", "counts"),
    [
        ("2", "1", "1", False, 2000),
        ("2", "1", "1", True, 1000),
        ("1", "2", "3", False, 3000),
        ("1", "1", None, False, 1000),
    ],
)
def test_the_most_counts_of_a_pod_with_resources_of_its_own(
    asks: str, promised: str, has: str | None, infeasible: bool, counts: int
) -> None:
    pending = core_v1.PodCondition(type="PodResizePending", status="True", reason="Infeasible")
    pod = core_v1.Pod(
        spec=core_v1.PodSpec(
            containers=[container("500m")], resources=core_v1.ResourceRequirements(requests={"cpu": asks})
        ),
        status=core_v1.PodStatus(
            allocated_resources={"cpu": promised, "memory": "1Gi"},
            resources=core_v1.ResourceRequirements(requests={"cpu": has}) if has else None,
            conditions=[pending] if infeasible else [],
        ),
    )
    assert pod_requests(pod) == {"cpu": counts}
    assert ("" in allocated_resources(pod)) is (has is not None)
