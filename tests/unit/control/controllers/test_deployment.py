"""Deployments: sizes in a rollout, revisions, hashes and conditions, as tables and as a played-through rollout."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from control.controllers.deployment import revisions, rolling, status
from control.controllers.deployment.template import BYTES_PER_YIELD, fnv32a, same_template, template_hash
from kube.api import apps_v1, core_v1
from tests.support.clock import settle

from .makers import NOW, deployment, replica_set, template


def sizes(changes: list[rolling.Resize]) -> dict[str, int]:
    return {change.rs.metadata.name: change.replicas for change in changes}


async def test_the_hash_is_stable_and_spells_no_word() -> None:
    assert await template_hash(template(), None) == await template_hash(template(), None)
    assert (
        await template_hash(template(), None)
        != await template_hash(template(), 1)
        != await template_hash(template(), 2)
    )
    assert await template_hash(template(), None) != await template_hash(template("other"), None)
    assert set(await template_hash(template(), None)) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert len(await template_hash(template(), None)) <= 10


async def test_the_hash_of_a_known_template_never_changes() -> None:
    # A release that changed it would roll out every Deployment of a cluster anew.
    assert await template_hash(template(), None) == "5776f98846"
    assert await template_hash(template(image="x" * 3 * BYTES_PER_YIELD), None) == "559ff8668b"


async def test_a_large_template_is_hashed_in_turns() -> None:
    hashing = asyncio.create_task(fnv32a(b"x" * 10 * BYTES_PER_YIELD))
    await settle(8)
    assert not hashing.done()
    await settle(8)
    assert hashing.done()


def test_templates_are_compared_without_the_hash_label() -> None:
    stamped = template(app="web", **{"pod-template-hash": "x"})
    assert same_template(stamped, template(app="web"))
    assert not same_template(stamped, template("other", app="web"))


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        ("25%", "25%", 3, (1, 0)),
        ("25%", "25%", 10, (3, 2)),
        (0, 0, 5, (0, 1)),
        ("1%", "1%", 5, (1, 0)),
        (2, 1, 0, (2, 1)),
    ],
)
def test_percentages_round_surge_up_and_unavailable_down(surge, unavailable, replicas, expected) -> None:
    assert revisions.fenceposts(deployment(replicas, surge=surge, unavailable=unavailable)) == expected


@pytest.mark.parametrize(
    ("replicas", "surge", "old", "new", "expected"),
    [
        (10, 0, 10, 0, {}),
        (10, 2, 10, 0, {"new": 2}),
        (10, 2, 5, 0, {"new": 7}),
        (10, 2, 10, 2, {}),
        (10, 2, 2, 8, {"new": 10}),
        (10, 2, 0, 12, {"new": 10}),
    ],
)
def test_the_new_set_grows_as_far_as_the_surge_allows(replicas, surge, old, new, expected) -> None:
    desired, fresh = deployment(replicas, surge=surge, unavailable=0), replica_set("new", new)
    assert sizes(rolling.grow_new(desired, fresh, [replica_set("old", old), fresh])) == expected


@pytest.mark.parametrize(
    ("replicas", "unavailable", "old", "old_up", "new", "new_up", "expected"),
    [
        (10, 0, 10, 10, 0, 0, {}),
        (10, 2, 10, 10, 0, 0, {"old": 8}),
        (10, 2, 10, 8, 0, 0, {"old": 8}),  # the two sick pods go first
        (10, 2, 10, 10, 2, 0, {"old": 8}),  # new pods that are not up give no room
        (10, 2, 8, 8, 2, 2, {"old": 6}),
        (10, 2, 0, 0, 10, 10, {}),
        (10, 0, 10, 10, 1, 1, {"old": 9}),
    ],
)
def test_old_sets_shrink_only_while_enough_stay_available(replicas, unavailable, old, old_up, new, new_up, expected):
    desired = deployment(replicas, surge=2, unavailable=unavailable)
    fresh, before = replica_set("new", new, available=new_up), replica_set("old", old, available=old_up)
    assert sizes(rolling.shrink_old(desired, fresh, [before])) == expected


@pytest.mark.parametrize("surge", [0, 1, 3])
@pytest.mark.parametrize("unavailable", [0, 1, 2])
@pytest.mark.parametrize("replicas", [1, 3, 10])
def test_a_rollout_ends_without_ever_breaking_its_bounds(replicas, surge, unavailable) -> None:
    desired = deployment(replicas, surge=surge, unavailable=unavailable)
    limit_up, limit_down = revisions.max_surge(desired), revisions.max_unavailable(desired)
    new, old = replica_set("new", 0), replica_set("old", replicas)
    for _ in range(100):
        changes = rolling.grow_new(desired, new, [old, new]) or rolling.shrink_old(desired, new, [old])
        for change in changes:
            change.rs.spec.replicas = change.replicas
            up = min(change.replicas, change.rs.status.available_replicas or 0)
            change.rs.status = apps_v1.ReplicaSetStatus(replicas=change.replicas, available_replicas=up)
        assert new.spec.replicas + old.spec.replicas <= replicas + limit_up
        assert (new.status.available_replicas or 0) + (old.status.available_replicas or 0) >= replicas - limit_down
        if not changes:
            if (new.spec.replicas, old.spec.replicas) == (replicas, 0) and new.status.available_replicas == replicas:
                return
            new.status.available_replicas = min(new.spec.replicas, (new.status.available_replicas or 0) + 1)
    pytest.fail("the rollout stands still")


def test_scaling_in_mid_rollout_is_spread_in_proportion() -> None:
    note = {"deployment.kubernetes.io__desired_replicas": "10", "deployment.kubernetes.io__max_replicas": "12"}
    old, new = replica_set("old", 8, age=200, **note), replica_set("new", 4, **note)
    desired = deployment(20, surge=2, unavailable=2)
    assert rolling.is_scaling(desired, [old, new])
    assert sizes(rolling.scale(desired, new, [old])) == {"old": 15, "new": 7}


def test_scaling_one_active_set_sets_its_size() -> None:
    new = replica_set("new", 3, **{"deployment.kubernetes.io__desired_replicas": "3"})
    assert sizes(rolling.scale(deployment(5), new, [replica_set("old", 0)])) == {"new": 5}


def test_a_saturated_new_set_ends_the_old_ones() -> None:
    new = replica_set("new", 5, **{"deployment.kubernetes.io__desired_replicas": "5"})
    assert sizes(rolling.scale(deployment(5), new, [replica_set("old", 2)])) == {"old": 0}


def test_recreate_stops_all_old_pods_and_scales_the_new_set_to_all_replicas() -> None:
    desired = deployment(4, strategy="Recreate")
    assert sizes(rolling.stop_old([replica_set("a", 2), replica_set("b", 0)])) == {"a": 0}
    assert rolling.new_size(desired, [replica_set("a", 2)], 0) == 4


@pytest.mark.parametrize(
    ("reported", "phases", "run"),
    [(0, [], False), (0, ["Succeeded", "Failed"], False), (0, ["Succeeded", "Running"], True), (1, [], True)],
)
def test_recreate_waits_for_old_pods_and_for_the_status_of_old_sets(
    reported: int, phases: list[str], run: bool
) -> None:
    old = replica_set("a", 0)
    old.status.replicas = reported
    pods = [core_v1.Pod(status=core_v1.PodStatus(phase=phase)) for phase in phases]
    assert rolling.old_pods_run([old], pods) is run


def test_the_new_revision_copies_annotations_but_not_the_books() -> None:
    desired = deployment(3)
    desired.metadata.annotations = {
        "team": "x",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        revisions.REVISION: "4",
    }
    found = revisions.new_set_annotations(desired, {}, 5, exists=False)
    assert found == {"team": "x", revisions.REVISION: "5", revisions.DESIRED_REPLICAS: "3", revisions.MAX_REPLICAS: "4"}


def test_a_rollback_gives_the_old_set_a_new_number_and_remembers_the_old_one() -> None:
    found = revisions.new_set_annotations(deployment(), {revisions.REVISION: "1"}, 3, exists=True)
    assert found[revisions.REVISION] == "3" and found[revisions.REVISION_HISTORY] == "1"
    again = revisions.new_set_annotations(deployment(), found, 5, exists=True)
    assert again[revisions.REVISION_HISTORY] == "1,3"


def test_sets_beyond_the_history_limit_go_oldest_first_but_never_live_ones() -> None:
    desired = deployment(revision_history_limit=1)
    old = [
        replica_set(f"r{n}", 1 if n == 2 else 0, **{"deployment.kubernetes.io__revision": str(n)}) for n in (1, 2, 3, 4)
    ]
    assert [rs.metadata.name for rs in revisions.removable(desired, old)] == ["r1", "r3"]


def step(desired: apps_v1.Deployment, new: apps_v1.ReplicaSet, seconds: float = 0) -> apps_v1.DeploymentStatus:
    return status.rollout(desired, [new], new, NOW + timedelta(seconds=seconds))


def progressing(found: apps_v1.DeploymentStatus) -> apps_v1.DeploymentCondition:
    condition = status.find(found.conditions, "Progressing")
    assert condition is not None
    return condition


def test_conditions_report_the_steps_of_a_rollout() -> None:
    desired, new = deployment(2), replica_set("web-abc", 2, available=0)
    first = step(desired, new)
    assert progressing(first).reason == "ReplicaSetUpdated"
    assert progressing(first).message == 'ReplicaSet "web-abc" is progressing.'
    assert status.find(first.conditions, "Available").reason == "MinimumReplicasUnavailable"
    desired.status = first
    done = step(desired, replica_set("web-abc", 2), 5)
    assert progressing(done).message == 'ReplicaSet "web-abc" has successfully progressed.'
    assert progressing(done).last_transition_time == progressing(first).last_transition_time
    assert progressing(done).last_update_time != progressing(first).last_update_time
    available = status.find(done.conditions, "Available")
    assert (available.reason, available.message) == ("MinimumReplicasAvailable", "Deployment has minimum availability.")


def test_no_progress_until_the_deadline_is_reported_once() -> None:
    desired, new = deployment(2), replica_set("web-abc", 2, available=0)
    desired.status = step(desired, new)
    assert status.check_stuck_in(desired, desired.status, NOW) == 601
    assert step(desired, new, 599) == desired.status
    late = step(desired, new, 601)
    assert (progressing(late).status, progressing(late).reason) == ("False", "ProgressDeadlineExceeded")
    assert progressing(late).message == 'ReplicaSet "web-abc" has timed out progressing.'
    desired.status = late
    assert step(desired, new, 700) == late and status.check_stuck_in(desired, late, NOW) is None


def test_a_finished_rollout_stays_finished_when_a_pod_falls_over() -> None:
    desired = deployment(2)
    desired.status = step(desired, replica_set("web-abc", 2, available=0))
    desired.status = step(desired, replica_set("web-abc", 2), 1)
    sick = step(desired, replica_set("web-abc", 2, available=1), 100_000)
    assert progressing(sick).reason == "NewReplicaSetAvailable"


def test_pause_and_resume_are_reported_once() -> None:
    desired = deployment(2, paused=True)
    desired.status.conditions = status.paused(desired, NOW)
    assert progressing(desired.status).reason == "DeploymentPaused" and progressing(desired.status).status == "Unknown"
    assert status.paused(desired, NOW) is None
    desired.spec = msgspec.structs.replace(desired.spec, paused=False)
    desired.status.conditions = status.paused(desired, NOW)
    assert progressing(desired.status).reason == "DeploymentResumed"
    assert status.paused(desired, NOW) is None


def test_a_replica_failure_of_the_new_set_is_the_deployments() -> None:
    new = replica_set("web-abc", 2, available=0)
    new.status.conditions = [
        apps_v1.ReplicaSetCondition(type="ReplicaFailure", status="True", reason="FailedCreate", message="no")
    ]
    failure = status.find(step(deployment(2), new).conditions, "ReplicaFailure")
    assert (failure.status, failure.reason, failure.message) == ("True", "FailedCreate", "no")
