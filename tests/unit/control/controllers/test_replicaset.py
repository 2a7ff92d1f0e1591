"""The ReplicaSet planner, deletion ranking and slow start, as tables."""

from __future__ import annotations

import asyncio
import random

import pytest

from control.controllers import pod_deletion_order
from control.controllers import pods as rules
from control.controllers.expectations import EXPIRY_SECONDS, Expectations
from control.controllers.pod_control import pods_prefix, slow_start
from control.controllers.replicaset import fully_labeled, plan, status_of
from control.controllers.step_counter import STEPS_PER_ITERATION
from kube.api import core_v1, meta_v1
from kube.errors import StatusError, forbidden
from kube.step_limit import StepTooLong
from tests.support.clock import FakeClock

from .makers import NOW, pod, replica_set


def test_missing_pods_are_created_up_to_the_burst() -> None:
    assert plan(5, [pod("a"), pod("b")], [], NOW).create == 3
    assert plan(900, [], [], NOW).create == 500


def test_nothing_is_done_when_the_count_is_right() -> None:
    found = plan(1, [pod("a")], [], NOW)
    assert (found.create, found.delete) == (0, ())


@pytest.mark.parametrize(
    ("doomed", "kept"),
    [
        (pod("x", node="", phase="Pending", ready=False), pod("y", phase="Pending", ready=False)),
        (pod("x", phase="Pending", ready=False), pod("y", phase="Unknown", ready=False)),
        (pod("x", phase="Unknown"), pod("y")),
        (pod("x", ready=False), pod("y")),
        (pod("x", annotations={pod_deletion_order.DELETION_COST: "-1"}), pod("y")),
        (pod("x"), pod("y", annotations={pod_deletion_order.DELETION_COST: "10"})),
        (pod("x", ready_for=10), pod("y", ready_for=10_000)),
        (pod("x", restarts=5), pod("y", restarts=1)),
        (pod("x", age=61), pod("y", age=10_000)),
    ],
    ids=["unassigned", "pending", "unknown", "unready", "cheap", "costly stays", "newly ready", "restarts", "young"],
)
def test_pods_that_are_worth_less_are_deleted_first(doomed, kept) -> None:
    for order in ([doomed, kept], [kept, doomed]):
        assert plan(1, order, [], NOW).delete == (doomed,)


def test_of_two_equal_pods_the_one_on_the_crowded_node_goes() -> None:
    crowded, lonely, neighbour = pod("a", node="n1"), pod("b", node="n2"), pod("c", node="n1")
    assert plan(1, [lonely, crowded], [crowded, lonely, neighbour], NOW).delete == (crowded,)


def test_a_bad_deletion_cost_counts_as_none() -> None:
    for text in ("", "+1", "007", "x", "4294967296"):
        assert pod_deletion_order.deletion_cost(pod(annotations={pod_deletion_order.DELETION_COST: text})) == 0


def test_the_ranking_is_a_total_order() -> None:
    chance = random.Random(7)
    pods = [
        pod(
            f"p{i}",
            node=chance.choice(["", "n1", "n2"]),
            phase=chance.choice(["Pending", "Running"]),
            ready=chance.random() < 0.5,
            ready_for=chance.choice([5, 60, 7000]),
            age=chance.choice([100, 9000]),
            restarts=chance.choice([0, 3]),
        )
        for i in range(30)
    ]
    ranks = pod_deletion_order.same_node_ranks(pods, pods)
    first = [p.metadata.name for p in pod_deletion_order.deletion_order(pods, ranks, NOW)]
    for _ in range(10):
        shuffled = chance.sample(pods, len(pods))
        again = pod_deletion_order.deletion_order(shuffled, pod_deletion_order.same_node_ranks(shuffled, pods), NOW)
        assert [p.metadata.name for p in again] == first


def test_status_counts_ready_and_available_apart() -> None:
    rs = replica_set("web-1", 3)
    rs.spec.min_ready_seconds = 30
    found = status_of(rs, [pod("a", ready_for=60), pod("b", ready_for=10), pod("c", ready=False)], 2, 1, None, NOW)
    assert (found.replicas, found.ready_replicas, found.available_replicas, found.terminating_replicas) == (3, 2, 1, 1)
    assert found.fully_labeled_replicas == 2


@pytest.mark.parametrize(("labels", "suspended"), [(3, 0), (4 * STEPS_PER_ITERATION, 5)])
async def test_the_labels_of_many_pods_are_compared_with_the_templates_in_turns(
    monkeypatch: pytest.MonkeyPatch, labels: int, suspended: int
) -> None:
    found, sleep = list[float](), asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: (found.append(seconds), sleep(seconds))[1])
    rs = replica_set("web-1", 5)
    template = {f"k{number}": "" for number in range(labels)}
    rs.spec.template = core_v1.PodTemplateSpec(metadata=meta_v1.ObjectMeta(labels=template))
    pods = [pod(name) for name in "abcde"]
    for each in pods[:3]:
        each.metadata.labels = {**template, "more": ""}
    assert await fully_labeled(rs, pods) == 3
    assert len(found) == suspended


def test_a_refused_creation_shows_as_replica_failure_and_goes_away_again() -> None:
    rs = replica_set("web-1", 3)
    refusal = forbidden("", "pods", "web-1-", "exceeded quota: q")
    failed = status_of(rs, [], 0, 0, refusal, NOW)
    (condition,) = failed.conditions
    assert (condition.type, condition.status, condition.reason) == ("ReplicaFailure", "True", "FailedCreate")
    assert condition.message == 'pods "web-1-" is forbidden: exceeded quota: q'
    rs.status = failed
    assert status_of(rs, [], 0, 0, None, NOW).conditions == []


async def test_creation_starts_slowly_and_stops_at_the_first_failing_batch() -> None:
    batches: list[int] = []

    async def act(number: int) -> None:
        batches.append(number)
        if number == 4:
            raise StatusError(403, "Forbidden", "no")

    sent, failure = await slow_start(100, act)
    assert sent == 7 and batches == list(range(7)) and failure is not None
    assert (await slow_start(4, lambda number: _nothing()))[0] == 4


async def _nothing() -> None:
    return None


async def test_open_expectations_hold_a_key_back_until_seen_or_expired() -> None:
    clock = FakeClock()
    open_ = Expectations(clock)
    assert open_.satisfied("k")
    open_.expect("k", 2)
    open_.creation_observed("k")
    assert not open_.satisfied("k")
    open_.creation_observed("k")
    assert open_.satisfied("k")
    open_.expect("k", deletions=["a", "b"])
    open_.deletion_observed("k", "a")
    open_.deletion_observed("k", "a")
    assert not open_.satisfied("k")
    await clock.advance(EXPIRY_SECONDS + 1)
    assert open_.satisfied("k")


async def test_nothing_stays_open_when_a_step_of_the_requests_is_stopped() -> None:
    expectations = Expectations(FakeClock())
    with pytest.raises(StepTooLong), expectations.requesting("ns/web", 2, ["uid-a"]):
        assert not expectations.satisfied("ns/web")
        raise StepTooLong
    assert expectations.satisfied("ns/web")
    with pytest.raises(OSError), expectations.requesting("ns/web", 2):
        raise OSError("nobody knows what was done")
    assert not expectations.satisfied("ns/web")


def test_a_name_that_cannot_take_a_dash_is_used_as_it_is() -> None:
    assert pods_prefix("web") == "web-"
    assert pods_prefix("w" * 253) == "w" * 253


def test_the_next_availability_is_the_soonest_of_those_on_their_way() -> None:
    pods = [pod("a", ready_for=10), pod("b", ready_for=25), pod("c", ready=False), pod("d", ready_for=100)]
    assert rules.next_availability(pods, 30, NOW) == 5
    assert rules.next_availability(pods, 0, NOW) is None
