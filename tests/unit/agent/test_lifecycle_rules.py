"""Single rules of the pod state machine: superfluous containers, grace periods, order of termination, restarts."""

from __future__ import annotations

from typing import Any

import pytest

from agent.lifecycle import container_hash, grace_of, policy_of, restarts, termination_waves
from agent.lifecycle.rules import deadline_at, surplus_instances
from kube.api import core_v1
from tests.unit.agent.pods import pod, record, runtime, sidecar


def test_old_dead_instances_are_superfluous_but_the_one_before_is_kept_for_its_log() -> None:
    dead = [record("main", "exited", 1, n=number) for number in range(4)]
    assert set(surplus_instances(runtime(*dead))) == {"main-0", "main-1"}
    assert set(surplus_instances(runtime(*dead, record("main", n=4)))) == {"main-0", "main-1", "main-2"}


def test_instances_that_were_never_started_do_not_push_out_the_one_that_ran() -> None:
    made = [record("main", "created", n=number) for number in (1, 2)]
    known = runtime(record("main", "exited", 1), *made)
    assert surplus_instances(known) == ("main-1",)
    assert surplus_instances(runtime(record("main", "exited", 1), made[0])) == ()


@pytest.mark.parametrize(
    ("spec", "override", "grace"),
    [
        ({}, None, 30),
        ({"terminationGracePeriodSeconds": 5}, None, 5),
        ({"terminationGracePeriodSeconds": 0}, None, 1),
        ({"terminationGracePeriodSeconds": 5}, 0, 0),
        ({"metadata": {"deletionGracePeriodSeconds": 3}, "terminationGracePeriodSeconds": 60}, None, 3),
        ({"metadata": {"deletionGracePeriodSeconds": 0}}, None, 1),
    ],
)
def test_the_grace_is_the_override_or_the_deletions_or_the_pods(
    spec: dict[str, Any], override: int | None, grace: int
) -> None:
    assert grace_of(pod(**spec), override) == grace


def test_a_deadline_that_an_older_version_stored_is_in_the_far_future() -> None:
    endless = pod()
    endless.spec.active_deadline_seconds, endless.status.start_time = 10**400, "2026-01-02T03:04:05Z"
    assert (deadline_at(endless) or 0) > 1e9


def test_sidecars_end_after_the_others_and_in_reverse_order() -> None:
    both = pod("one", "two", init=[sidecar("first"), "plain", sidecar("second")])
    alive = runtime(record("first"), record("second"), record("one"), record("two"), record("forgotten"))
    waves = [sorted(r.name for r in wave) for wave in termination_waves(both, alive)]
    assert waves == [["forgotten", "one", "two"], ["second"], ["first"]]
    assert termination_waves(both, runtime(record("one", "exited"))) == []


def test_policies_of_containers_and_the_hash_of_a_definition() -> None:
    one = pod("main", init=["setup", sidecar()])
    assert policy_of(one, one.spec.init_containers[0]) == "OnFailure"
    assert policy_of(one, one.spec.init_containers[1]) == "Always"
    assert not restarts(one, one.spec.containers[0], record("main"))
    same = core_v1.Container(name="a", image="b", command=["x"])
    assert container_hash(same) == container_hash(core_v1.Container(name="a", image="b"))
    assert container_hash(same) != container_hash(core_v1.Container(name="a", image="c"))
