"""StatefulSets: order, partitions, identity and claims."""

from __future__ import annotations

import json

import pytest

from control.controllers import history
from control.controllers.statefulset import identity
from control.controllers.statefulset.plan import BURST, plan
from kube.api import apps_v1, core_v1, meta_v1
from kube.object_names import key_of

from .makers import NOW, pod, template


def stateful(replicas: int = 3, *, parallel: bool = False, start: int = 0, **rolling) -> apps_v1.StatefulSet:
    return apps_v1.StatefulSet(
        metadata=meta_v1.ObjectMeta(name="db", namespace="default", uid="uid-db", generation=1),
        spec=apps_v1.StatefulSetSpec(
            replicas=replicas,
            service_name="db",
            template=template(),
            selector=meta_v1.LabelSelector(match_labels={"app": "web"}),
            pod_management_policy="Parallel" if parallel else "OrderedReady",
            ordinals=apps_v1.StatefulSetOrdinals(start=start) if start else None,
            update_strategy=apps_v1.StatefulSetUpdateStrategy(
                type="RollingUpdate", rolling_update=apps_v1.RollingUpdateStatefulSetStrategy(**rolling)
            ),
        ),
    )


def member(ordinal: int, revision: str = "r1", **more) -> core_v1.Pod:
    found = pod(f"db-{ordinal}", **more)
    found.metadata.labels = {history.HASH_LABEL: revision}
    return found


def look(desired: apps_v1.StatefulSet, pods, current: str = "r1", update: str = "r1"):
    return plan(desired, pods, current, update, NOW)


def names(pods) -> list[str]:
    return [p.metadata.name for p in pods]


@pytest.mark.parametrize(
    ("pods", "created"),
    [
        ([], [0]),
        ([member(0, ready=False)], []),
        ([member(0)], [1]),
        ([member(0), member(1)], [2]),
        ([member(0), member(2)], [1]),
        ([member(1), member(2)], [0]),
        ([member(0, deleting=True)], []),
        ([member(0), member(1), member(2)], []),
    ],
)
def test_pods_are_made_one_after_another_each_when_the_one_before_is_up(pods, created) -> None:
    assert [ordinal for ordinal, _ in look(stateful(partition=0), pods).create] == created


def test_parallel_pods_are_made_all_at_once() -> None:
    todo = look(stateful(parallel=True, partition=0), [member(1, ready=False)])
    assert [ordinal for ordinal, _ in todo.create] == [0, 2]


def test_ordinals_may_start_elsewhere_than_at_zero() -> None:
    todo = look(stateful(2, start=5, partition=0, parallel=True), [member(0), member(5)])
    assert [ordinal for ordinal, _ in todo.create] == [6] and names(todo.condemned) == ["db-0"]


def test_scaling_down_goes_from_the_top_one_at_a_time() -> None:
    pods = [member(n) for n in range(4)]
    assert names(look(stateful(2, partition=0), pods).delete) == ["db-3"]
    pods[3].metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert look(stateful(2, partition=0), pods).delete == []
    assert names(look(stateful(2, partition=0, parallel=True), pods).delete) == ["db-2"]


def test_scaling_down_waits_for_sick_pods_below() -> None:
    pods = [member(0), member(1, ready=False), member(2), member(3)]
    assert look(stateful(2, partition=0), pods).delete == []


def test_a_failed_pod_is_deleted_to_be_made_anew() -> None:
    todo = look(stateful(partition=0), [member(0, phase="Failed")])
    assert names(todo.delete) == names(todo.failed) == ["db-0"] and todo.create == []


def test_an_update_goes_from_the_top_and_waits_for_each_pod() -> None:
    desired = stateful(partition=0)
    assert names(look(desired, [member(0), member(1), member(2)], update="r2").delete) == ["db-2"]
    assert look(desired, [member(0), member(1), member(2, "r2", ready=False)], update="r2").delete == []
    assert names(look(desired, [member(0), member(1), member(2, "r2")], update="r2").delete) == ["db-1"]


def test_an_update_replaces_a_broken_old_pod_when_it_comes_to_it() -> None:
    desired = stateful(parallel=True, partition=0)
    assert names(look(desired, [member(0), member(1), member(2, ready=False)], update="r2").delete) == ["db-2"]


@pytest.mark.parametrize(
    ("limit", "pods", "deleted"),
    [
        (1, [member(0, ready=False), member(1, ready=False), member(2, ready=False)], ["db-2"]),
        (2, [member(0, ready=False), member(1, ready=False), member(2, ready=False)], ["db-2", "db-1"]),
        (1, [member(0, ready=False), member(1, ready=False), member(2, "r2", ready=False)], []),
        (2, [member(0, ready=False), member(1, ready=False), member(2, "r2", ready=False)], ["db-1"]),
        (1, [member(0, ready=False), member(1, ready=False), member(2, deleting=True)], []),
        (1, [member(0, ready=False), member(1, ready=False), member(2, "r2")], ["db-1"]),
    ],
)
def test_old_pods_that_are_down_are_not_given_up_for_a_revision_that_does_not_come_up(limit, pods, deleted) -> None:
    desired = stateful(parallel=True, partition=0, max_unavailable=limit)
    assert names(look(desired, pods, update="r2").delete) == deleted


def test_more_pods_may_be_unavailable_with_max_unavailable() -> None:
    desired = stateful(4, partition=0, max_unavailable=2)
    assert names(look(desired, [member(n) for n in range(4)], update="r2").delete) == ["db-3", "db-2"]


def test_a_partition_keeps_the_lower_ordinals_as_they_are() -> None:
    desired = stateful(partition=2)
    assert names(look(desired, [member(0), member(1), member(2)], update="r2").delete) == ["db-2"]
    assert look(desired, [member(0), member(1), member(2, "r2")], update="r2").delete == []
    assert look(desired, [member(0)], update="r2").create == [(1, "r1")]
    assert look(desired, [member(0), member(1)], update="r2").create == [(2, "r2")]


def test_on_delete_updates_nothing_by_itself() -> None:
    desired = stateful()
    desired.spec.update_strategy = apps_v1.StatefulSetUpdateStrategy(type="OnDelete")
    assert look(desired, [member(0), member(1), member(2)], update="r2").delete == []
    assert look(desired, [member(0), member(1)], update="r2").create == [(2, "r2")]


def test_the_status_turns_to_the_new_revision_when_all_pods_are_of_it() -> None:
    desired = stateful(2, partition=0)
    half = look(desired, [member(0), member(1, "r2")], update="r2").status
    assert (half.current_revision, half.update_revision) == ("r1", "r2")
    assert (half.current_replicas, half.updated_replicas, half.ready_replicas) == (1, 1, 2)
    done = look(desired, [member(0, "r2"), member(1, "r2")], update="r2").status
    assert (done.current_revision, done.current_replicas, done.updated_replicas) == ("r2", 2, 2)


def test_a_pod_has_its_name_its_labels_and_its_claims() -> None:
    desired = stateful()
    desired.spec.volume_claim_templates = [
        core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name="data", labels={"tier": "x"}))
    ]
    revision = apps_v1.ControllerRevision(
        metadata=meta_v1.ObjectMeta(name="db-abc"), data=history.data_of(desired.spec.template), revision=1
    )
    made = identity.pod_of(desired, 1, history.template_of(revision), "db-abc")
    assert (made.metadata.name, made.spec.hostname, made.spec.subdomain) == ("db-1", "db-1", "db")
    assert made.metadata.labels == {
        "app": "web",
        identity.NAME_LABEL: "db-1",
        identity.INDEX_LABEL: "1",
        history.HASH_LABEL: "db-abc",
    }
    assert made.spec.volumes[0].persistent_volume_claim.claim_name == "data-db-1"
    ((claim_template, key),) = identity.claim_keys(desired, 1)
    claim = identity.claim_of(desired, claim_template, 1)
    assert key == "default/data-db-1" == key_of(claim)
    assert claim.metadata.name == "data-db-1" and claim.metadata.labels == {"tier": "x", "app": "web"}


async def test_revisions_contain_the_template_and_differ_by_template() -> None:
    data = history.data_of(template("one"))
    assert json.dumps(data) == json.dumps(data, sort_keys=True), "kubectl compares bytes"
    revision = apps_v1.ControllerRevision(data=data)
    assert history.template_of(revision) == template("one")
    hashes = [await history.hash_of(data, None), await history.hash_of(data, 1)]
    assert len({*hashes, await history.hash_of(history.data_of(template("two")), 1)}) == 3


def test_only_idle_revisions_beyond_the_limit_go() -> None:
    old = [apps_v1.ControllerRevision(metadata=meta_v1.ObjectMeta(name=f"r{n}"), revision=n) for n in range(4)]
    past = history.History(apps_v1.ControllerRevision(), old, None)
    assert names(history.surplus(past, 1, {"r0"})) == ["r1", "r2"]


def test_as_many_pods_as_a_plan_may_hold_are_made_at_once_and_then_the_next() -> None:
    desired = stateful(2**31 - 1, parallel=True, partition=0)
    assert [ordinal for ordinal, _ in look(desired, [member(1)]).create] == [0, *range(2, BURST + 1)]
    later = look(desired, [member(n) for n in range(BURST)])
    assert [ordinal for ordinal, _ in later.create] == list(range(BURST, 2 * BURST)) and later.delete == []


def test_as_many_pods_as_a_plan_may_hold_are_deleted_at_once() -> None:
    pods = [member(n) for n in range(BURST + 2)]
    assert len(look(stateful(0, parallel=True, partition=0), pods).delete) == BURST
    all_at_once = stateful(BURST + 2, parallel=True, partition=0, max_unavailable="100%")
    assert len(look(all_at_once, pods, update="r2").delete) == BURST


def test_an_ordinal_that_is_held_back_holds_up_the_others_only_where_they_are_made_in_order() -> None:
    assert plan(stateful(partition=0), [], "r1", "r1", NOW, {0}).create == []
    parallel = plan(stateful(parallel=True, partition=0), [], "r1", "r1", NOW, {0})
    assert [ordinal for ordinal, _ in parallel.create] == [1, 2]
