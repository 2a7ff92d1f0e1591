from __future__ import annotations

from typing import Any

import pytest

from tests.unit.control.registry.strategies import cells, container, pod, strategy_of

RUNNING = {"running": {"startedAt": "2026-01-02T11:56:00Z"}}


def status(name: str = "c", **parts: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "ready": False, **parts}


def shown(spec: dict[str, Any] | None = None, **found: Any) -> tuple[str, str, str]:
    obj = pod(**(spec or {}))
    obj["status"] = found
    row = cells(obj)
    return row["Ready"], row["Status"], row["Restarts"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"phase": "Pending"}, ("0/1", "Pending", "0")),
        (
            {"phase": "Pending", "containerStatuses": [status(state={"waiting": {"reason": "ContainerCreating"}})]},
            ("0/1", "ContainerCreating", "0"),
        ),
        ({"phase": "Running", "containerStatuses": [status(ready=True, state=RUNNING)]}, ("1/1", "Running", "0")),
        (
            {
                "phase": "Running",
                "containerStatuses": [
                    status(
                        restartCount=3,
                        state={"waiting": {"reason": "CrashLoopBackOff"}},
                        lastState={"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T11:55:00Z"}},
                    )
                ],
            },
            ("0/1", "CrashLoopBackOff", "3 (5m ago)"),
        ),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": [status(state={"terminated": {"exitCode": 0, "reason": "Completed"}})],
            },
            ("0/1", "Completed", "0"),
        ),
        (
            {"phase": "Failed", "containerStatuses": [status(state={"terminated": {"exitCode": 3}})]},
            ("0/1", "ExitCode:3", "0"),
        ),
        (
            {"phase": "Failed", "containerStatuses": [status(state={"terminated": {"signal": 9, "exitCode": 137}})]},
            ("0/1", "Signal:9", "0"),
        ),
        ({"phase": "Failed", "reason": "Evicted"}, ("0/1", "Evicted", "0")),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            ("0/1", "SchedulingGated", "0"),
        ),
    ],
)
def test_status_shows_the_containers_states(found: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert shown(**found) == expected


INITS = {"initContainers": [container(name="i0"), container(name="i1")]}


@pytest.mark.parametrize(
    ("inits", "expected"),
    [
        ([status("i0", state=RUNNING), status("i1")], "Init:0/2"),
        ([status("i0", state={"terminated": {"exitCode": 0}}), status("i1", state=RUNNING)], "Init:1/2"),
        ([status("i0", state={"terminated": {"exitCode": 1, "reason": "Error"}})], "Init:Error"),
        ([status("i0", state={"terminated": {"exitCode": 2}})], "Init:ExitCode:2"),
        ([status("i0", state={"waiting": {"reason": "ImagePullBackOff"}})], "Init:ImagePullBackOff"),
        ([status("i0", state={"waiting": {"reason": "PodInitializing"}})], "Init:0/2"),
    ],
)
def test_status_reports_how_far_initialisation_is(inits: list[dict[str, Any]], expected: str) -> None:
    assert shown(INITS, phase="Pending", initContainerStatuses=inits)[1] == expected


def test_a_sidecar_counts_as_a_container_and_its_restarts_stay_after_initialisation() -> None:
    spec = {"initContainers": [container(name="proxy", restartPolicy="Always")]}
    inits = [status("proxy", restartCount=2, ready=True, started=True, state=RUNNING)]
    found = shown(
        spec,
        phase="Running",
        conditions=[{"type": "Initialized", "status": "True"}],
        initContainerStatuses=inits,
        containerStatuses=[status(ready=True, state=RUNNING)],
    )
    assert found == ("2/2", "Running", "2")


def test_a_completed_container_beside_a_running_one_leaves_the_pod_running_or_not_ready() -> None:
    done = status("c", state={"terminated": {"exitCode": 0, "reason": "Completed"}})
    both = [done, status("d", ready=True, state=RUNNING)]
    spec = {"containers": [container(), container(name="d")]}
    assert shown(spec, phase="Running", containerStatuses=both)[:2] == ("1/2", "NotReady")
    ready = [{"type": "Ready", "status": "True"}]
    assert shown(spec, phase="Running", conditions=ready, containerStatuses=both)[:2] == ("1/2", "Running")


def test_deletion_shows_as_terminating_and_a_lost_node_as_unknown() -> None:
    obj = pod()
    obj["metadata"]["deletionTimestamp"] = "2026-01-02T11:59:00Z"
    obj["status"] = {"phase": "Running"}
    assert cells(obj)["Status"] == "Terminating"
    obj["status"] = {"phase": "Running", "reason": "NodeLost"}
    assert cells(obj)["Status"] == "Unknown"
    obj["status"] = {"phase": "Succeeded"}
    assert cells(obj)["Status"] == "Succeeded"


def test_wide_columns_show_address_node_nomination_and_gates() -> None:
    obj = pod(nodeName="n1", readinessGates=[{"conditionType": "a"}, {"conditionType": "b"}])
    obj["status"] = {
        "phase": "Running",
        "podIPs": [{"ip": "10.244.0.7"}],
        "conditions": [{"type": "a", "status": "True"}],
    }
    row = cells(obj)
    assert [row[k] for k in ("IP", "Node", "Nominated Node", "Readiness Gates")] == [
        "10.244.0.7",
        "n1",
        "<none>",
        "1/2",
    ]
    assert row["Age"] == "5m"
    assert [c.name for c in strategy_of(obj).columns if c.priority == 1] == [
        "IP",
        "Node",
        "Nominated Node",
        "Readiness Gates",
    ]


def test_a_pod_that_has_ended_carries_the_completed_row_condition() -> None:
    obj = pod()
    obj["status"] = {"phase": "Succeeded"}
    assert strategy_of(obj).row_conditions(obj) == [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ]
    obj["status"] = {"phase": "Running"}
    assert strategy_of(obj).row_conditions(obj) == []
