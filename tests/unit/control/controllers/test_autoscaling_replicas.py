"""Replica counts from metrics: upstream's rules for pods that are unready, missing or terminating, as tables."""

from __future__ import annotations

from datetime import timedelta

import pytest

from control.controllers.autoscaling import replicas as rules
from control.controllers.autoscaling.replicas import MetricsError, PodMetric, Tolerances
from control.controllers.autoscaling.settings import Startup
from kube.api import core_v1

from .makers import NOW, ago, pod


def worker(name: str, request: str | None = "1", **options: object) -> core_v1.Pod:
    """A pod that has been up for an hour and asks for CPU."""
    requests: dict[str, str | int | float] = {"cpu": request} if request is not None else {}
    container = core_v1.Container(name="c", resources=core_v1.ResourceRequirements(requests=requests))
    made = pod(name, containers=[container], **options)  # type: ignore[arg-type]
    made.status.start_time = ago(3600)
    return made


def metric(value: int) -> PodMetric:
    return PodMetric(value, NOW, 15)


def desired(current: int, target: int, pods: list[core_v1.Pod], used: dict[str, int], **more: object) -> rules.Proposal:
    found = {name: metric(value) for name, value in used.items()}
    return rules.by_utilization(current, target, pods, found, "cpu", Tolerances(), Startup(), NOW, **more)  # type: ignore[arg-type]


THREE = [worker(name) for name in "abc"]


@pytest.mark.parametrize(
    ("target", "used", "replicas", "utilization"),
    [
        (50, {"a": 1000, "b": 1000, "c": 1000}, 6, 100),
        (50, {"a": 100, "b": 100, "c": 100}, 1, 10),
        (50, {"a": 520, "b": 530, "c": 540}, 3, 53),
        (50, {"a": 455, "b": 455, "c": 455}, 3, 45),
        (100, {"a": 300, "b": 500, "c": 700}, 2, 50),
    ],
    ids=["doubles", "shrinks", "tolerates more", "tolerates less", "averages"],
)
def test_the_ratio_of_use_to_target_is_applied(
    target: int, used: dict[str, int], replicas: int, utilization: int
) -> None:
    found = desired(3, target, THREE, used)
    assert (found.replicas, found.utilization) == (replicas, utilization)


def test_a_pod_without_figures_uses_nothing_on_the_way_up_and_everything_on_the_way_down() -> None:
    assert desired(3, 50, THREE, {"a": 1000, "b": 1000}).replicas == 4
    assert desired(3, 50, THREE, {"a": 100, "b": 100}).replicas == 3
    assert desired(3, 50, THREE, {"a": 600, "b": 600}).replicas == 3


def test_pods_that_are_not_ready_yet_use_nothing_on_the_way_up() -> None:
    pods = [worker("a"), worker("b", phase="Pending", ready=False), worker("c", phase="Pending", ready=False)]
    assert desired(3, 25, pods, {"a": 1000, "b": 0, "c": 0}).replicas == 4
    assert desired(3, 60, pods, {"a": 1000}).replicas == 3


@pytest.mark.parametrize(
    ("started", "ready", "turned", "measured", "starting"),
    [
        (60, True, 30, 0, False),
        (60, True, 5, 0, True),
        (60, False, 30, 0, True),
        (3600, True, 5, 0, False),
        (3600, False, 3595, 0, True),
        (3600, False, 60, 0, False),
    ],
    ids=[
        "young and measured since it became ready",
        "young and measured from before that",
        "young and not ready",
        "old and ready",
        "old and never ready",
        "old and ready before",
    ],
)
def test_cpu_of_a_starting_pod_does_not_count(
    started: float, ready: bool, turned: float, measured: float, starting: bool
) -> None:
    young = worker("a", ready=ready, ready_for=turned)
    young.status.start_time = ago(started)
    found = {"a": PodMetric(500, NOW - timedelta(seconds=measured), 15)}
    assert (rules.group([young], found, "cpu", Startup(), NOW).unready == {"a"}) is starting
    assert rules.group([young], found, "memory", Startup(), NOW).ready == 1


def test_pods_that_go_or_have_failed_are_left_out() -> None:
    pods = [worker("a"), worker("b", deleting=True), worker("c", phase="Failed")]
    assert desired(1, 50, pods, {"a": 1000, "b": 0, "c": 0}).replicas == 2


@pytest.mark.parametrize(
    ("pods", "used", "message"),
    [
        ([], {"a": 1}, "no pods returned by selector while calculating replica count"),
        (THREE, {}, "did not receive metrics for targeted pods (pods might be unready)"),
        ([worker("a", None)], {"a": 1}, "missing request for cpu in container c of Pod a"),
        (THREE, {"x": 1}, "no metrics returned matched known pods"),
    ],
)
def test_missing_metric_values_are_reported_with_upstreams_messages(
    pods: list[core_v1.Pod], used: dict[str, int], message: str
) -> None:
    with pytest.raises(MetricsError) as caught:
        desired(3, 50, pods, used)
    assert str(caught.value) == message


def test_requests_are_of_all_containers_and_sidecars_or_of_one_or_of_the_pod() -> None:
    requesting = core_v1.ResourceRequirements(requests={"cpu": "100m"})
    several = pod("a", containers=[core_v1.Container(name="c", resources=requesting)])
    several.spec.containers.append(core_v1.Container(name="d", resources=requesting))
    several.spec.init_containers = [
        core_v1.Container(name="setup"),
        core_v1.Container(name="side", restart_policy="Always", resources=requesting),
    ]
    assert rules.requests_of([several], "cpu") == {"a": 300}
    assert rules.requests_of([several], "cpu", "d") == {"a": 100}
    several.spec.resources = core_v1.ResourceRequirements(requests={"cpu": "2"})
    assert rules.requests_of([several], "cpu") == {"a": 2000}


def test_an_amount_a_pod_is_aimed_at() -> None:
    found = {name: metric(20_000) for name in "abc"}
    proposal = rules.by_value(3, 10_000, THREE, found, "", Tolerances(), Startup(), NOW)
    assert (proposal.replicas, proposal.usage) == (6, 20_000)
    lacking = {name: metric(2_000) for name in "ab"}
    assert rules.by_value(3, 10_000, THREE, lacking, "", Tolerances(), Startup(), NOW).replicas == 2


@pytest.mark.parametrize(
    ("current", "usage", "target", "replicas"),
    [(3, 60, 20, 9), (3, 21, 20, 3), (3, 5, 20, 1), (0, 50, 20, 3), (0, 0, 20, 0)],
)
def test_a_total_is_aimed_at_by_the_pods_that_are_ready(current: int, usage: int, target: int, replicas: int) -> None:
    assert rules.by_total(current, usage, target, THREE, Tolerances()) == replicas


@pytest.mark.parametrize(
    ("current", "usage", "replicas", "shown"), [(3, 90, 5, 30), (3, 61, 3, 21), (3, 10, 1, 4), (0, 50, 3, 50)]
)
def test_a_share_of_a_total_is_aimed_at(current: int, usage: int, replicas: int, shown: int) -> None:
    found = rules.by_share(current, usage, 20, Tolerances())
    assert (found.replicas, found.usage) == (replicas, shown)


def test_tolerances_differ_by_direction() -> None:
    found = {name: metric(560) for name in "abc"}
    wide = Tolerances(down=0.5, up=0.05)
    assert rules.by_utilization(3, 50, THREE, found, "cpu", wide, Startup(), NOW).replicas == 4
    low = {name: metric(300) for name in "abc"}
    assert rules.by_utilization(3, 50, THREE, low, "cpu", wide, Startup(), NOW).replicas == 3
