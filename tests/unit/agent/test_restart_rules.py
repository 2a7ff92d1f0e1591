"""Containers' own restart rules by exit code, and the restart of all containers for the end of one (KEP-5307, KEP-5532)."""

from __future__ import annotations

from typing import Any

import pytest

from agent.lifecycle import Plan, Situation, plan, removal_order, restarts, restarts_all
from agent.runtime_records import PodRuntime
from agent.status.container import StatusInputs
from agent.status.pod import NodeFacts, pod_status
from kube.api import core_v1
from tests.unit.agent.pods import pod, record, runtime, sandbox

NOW = 200.0


def rule(action: str, *codes: int, operator: str = "In") -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


def ruled(*rules: dict[str, Any], name: str = "main", policy: str = "Never") -> dict[str, Any]:
    return {"name": name, "restartPolicy": policy, "restartPolicyRules": list(rules)}


def decide(given: core_v1.Pod, what: PodRuntime, **more: Any) -> Plan:
    return plan(Situation(pod=given, runtime=what, now=NOW, **more))


@pytest.mark.parametrize(
    ("rules", "policy", "code", "again"),
    [
        ((rule("Restart", 42),), "Never", 42, True),
        ((rule("Restart", 42),), "Never", 43, False),
        ((rule("Restart", 42),), "Never", 0, False),
        ((rule("Restart", 42, 43),), "Never", 43, True),
        ((rule("Restart", 0, 1, operator="NotIn"),), "Never", 42, True),
        ((rule("Restart", 0, 1, operator="NotIn"),), "Never", 1, False),
        ((rule("Restart", 0),), "OnFailure", 0, True),
        ((rule("Restart", 0),), "OnFailure", 1, True),
        ((rule("Restart", 5),), "Always", 0, True),
        ((rule("RestartAllContainers", 42),), "Never", 42, True),
        ((), "Never", 42, False),
    ],
)
def test_a_rule_wins_over_the_containers_policy(
    rules: tuple[dict[str, Any], ...], policy: str, code: int, again: bool
) -> None:
    given = pod(ruled(*rules, policy=policy), policy="Never")
    assert restarts(given, given.spec.containers[0], record("main", "exited", code)) is again


def test_the_first_rule_that_is_for_an_end_counts() -> None:
    first = pod(ruled(rule("Restart", 42), rule("RestartAllContainers", 42, 43)))
    assert restarts_all(first, runtime(record("main", "exited", 42))) is None
    found = restarts_all(first, runtime(record("main", "exited", 43)))
    assert found is not None and found.name == "main"
    assert restarts_all(first, runtime(record("main"))) is None


TRIGGER = ruled(rule("RestartAllContainers", 42))


@pytest.mark.parametrize("code", [42, 1])
def test_the_end_of_one_container_restarts_all_only_by_its_rule(code: int) -> None:
    given = pod(TRIGGER, "other", policy="Never")
    decided = decide(given, runtime(record("main", "exited", code), record("other")))
    assert (decided.restart_all is not None) is (code == 42)
    assert decided.end is None and not decided.start


def test_a_restart_of_all_containers_waits_for_the_back_off_of_the_container_that_caused_it() -> None:
    given = pod(TRIGGER, "other", policy="Never")
    what = runtime(record("main", "exited", 42), record("other"))
    decided = decide(given, what, restart_at=lambda name, ended: 230.0)
    assert decided.restart_all is None and decided.wake_at == 230.0 and list(decided.backing_off) == ["main"]


def test_an_init_container_and_a_sidecar_may_restart_the_pod_too() -> None:
    for init in (ruled(rule("RestartAllContainers", 3), name="i"), {**TRIGGER, "name": "i", "restartPolicy": "Always"}):
        given = pod("main", init=[init], policy="Never")
        code = 3 if init["restartPolicy"] == "Never" else 42
        decided = decide(given, runtime(record("i", "exited", code), record("main")))
        assert decided.restart_all is not None and decided.restart_all.name == "i"


def ran(name: str, count: int) -> dict[str, Any]:
    return {
        "name": name,
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": count,
        "state": {"waiting": {"reason": "PodInitializing"}},
        "lastState": {"terminated": {"exitCode": 42}},
    }


def test_containers_that_were_taken_away_count_on_from_what_the_api_shows() -> None:
    status = {"phase": "Running", "initContainerStatuses": [ran("i", 2)], "containerStatuses": [ran("main", 4)]}
    given = pod(TRIGGER, init=["i"], policy="Never", status=status)
    (start,) = decide(given, runtime()).start
    assert (start.name, start.restart_count) == ("i", 3)
    (start,) = decide(given, runtime(record("i", "exited", 0, n=3))).start
    assert (start.name, start.restart_count) == ("main", 5)


def test_a_dead_sandbox_is_made_anew_for_a_restart_of_all() -> None:
    what = runtime(record("main", "exited", 42), sandboxes=(sandbox(ready=False),))
    assert decide(pod(TRIGGER, policy="Never"), what).new_sandbox == 1


def condition(status: core_v1.PodStatus) -> tuple[str, str | None, str | None] | None:
    found = [c for c in status.conditions if c.type == "AllContainersRestarting"]
    return (found[0].status, found[0].reason, found[0].message) if found else None


def status_of(given: core_v1.Pod, what: PodRuntime, finished: bool = False) -> core_v1.PodStatus:
    return pod_status(given, what, StatusInputs(ended=finished), NodeFacts(), NOW, finished=finished)


def test_the_condition_reports_the_restart_and_the_phase_does_not_revert() -> None:
    given = pod(TRIGGER, "other", policy="Never", status={"phase": "Running"})
    going = status_of(given, runtime(record("main", "exited", 42), record("other", "exited", 137)))
    text = "container exited with restart policy rule"
    assert (going.phase, condition(going)) == ("Running", ("True", "RestartAllContainersStarted", text))
    taken_away = status_of(given, runtime(record("main", "exited", 42)))
    assert (taken_away.phase, condition(taken_away)) == ("Running", ("True", "RestartAllContainersStarted", text))
    gone = status_of(pod(TRIGGER, policy="Never", status={**_reported(), "phase": "Running"}), runtime())
    assert (gone.phase, condition(gone)) == ("Running", ("False", None, None))
    assert gone.container_statuses[0].restart_count == 4
    ended = status_of(given, runtime(record("main", "exited", 0), record("other", "exited", 0)), finished=True)
    assert (ended.phase, condition(ended)) == ("Succeeded", ("False", "PodCompleted", None))
    assert condition(status_of(pod("main"), runtime(record("main")))) is None


def _reported() -> dict[str, Any]:
    return {"containerStatuses": [ran("main", 4)]}


def test_how_a_container_ended_stays_known_until_it_runs_again() -> None:
    given = pod(TRIGGER, policy="Never", status={**_reported(), "phase": "Running"})
    last = status_of(given, runtime()).container_statuses[0].last_state
    assert last is not None and last.terminated is not None and last.terminated.exit_code == 42


def test_a_restart_of_all_removes_older_instances_first_and_its_cause_last() -> None:
    old, new = record("other", "exited", 1), record("other", "exited", 1, n=1)
    cause = record("main", "exited", 42)
    for order in ([cause, new, old], [new, cause, old], [old, new, cause]):
        assert removal_order(runtime(*order), cause) == [old, new, cause]
