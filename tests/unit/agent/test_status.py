"""A pod's status: phases, conditions and container states as tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from agent.interfaces import ProbeOutcome
from agent.lifecycle import End
from agent.runtime_records import ContainerRecord, PodRuntime, State
from agent.status.container import StatusInputs, Waiting
from agent.status.patch import difference
from agent.status.pod import NodeFacts, pod_status
from kube.api import core_v1
from tests.unit.agent.pods import NOTHING, pod, record, runtime, sandbox, sidecar

NODE = NodeFacts(("192.0.2.1",))
NOW = 1000.0
AGAIN = {"operator": "In", "values": [42, 0]}
RULE = {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": AGAIN}]}
RULED = pod({**RULE, "name": "main"}, policy="Never")
BACK_OFF = Waiting("CrashLoopBackOff", "back-off 10s")


def status_of(
    pod: core_v1.Pod, runtime: PodRuntime, *, finished: bool = False, end: End | None = None, **known: Any
) -> core_v1.PodStatus:
    ended = finished or end is not None
    return pod_status(pod, runtime, StatusInputs(ended=ended, **known), NODE, NOW, finished=finished, end=end)


@dataclass(frozen=True)
class Row:
    name: str
    pod: core_v1.Pod
    runtime: PodRuntime
    phase: str
    finished: bool = False
    waiting: dict[str, Waiting] = field(default_factory=dict)


PHASES = [
    Row("nothing yet", pod(), NOTHING, "Pending"),
    Row("a sandbox alone", pod(), runtime(), "Pending"),
    Row("running", pod(), runtime(record("main")), "Running"),
    Row("one of two runs", pod("main", "two"), runtime(record("main")), "Pending"),
    Row("one runs, one crashed", pod("main", "two"), runtime(record("main"), record("two", "exited", 1)), "Running"),
    Row("crashed, to be restarted", pod(), runtime(record("main", "exited", 1)), "Running"),
    Row("in back-off", pod(), runtime(record("main", "exited", 1)), "Running", waiting={"main": BACK_OFF}),
    Row("Never, succeeded", pod(policy="Never"), runtime(record("main", "exited", 0)), "Succeeded"),
    Row("Never, failed", pod(policy="Never"), runtime(record("main", "exited", 1)), "Failed"),
    Row("Never, to be restarted by its rule", RULED, runtime(record("main", "exited", 42)), "Running"),
    Row(
        "Never, in the back-off of its rule",
        RULED,
        runtime(record("main", "exited", 42)),
        "Running",
        waiting={"main": BACK_OFF},
    ),
    Row("Never, no rule for its end", RULED, runtime(record("main", "exited", 1)), "Failed"),
    Row("Never, succeeded but to be restarted by its rule", RULED, runtime(record("main", "exited", 0)), "Running"),
    Row(
        "init failed, to be restarted by its rule",
        pod(init=[{**RULE, "name": "a"}], policy="Never"),
        runtime(record("a", "exited", 42)),
        "Pending",
    ),
    Row("OnFailure, succeeded", pod(policy="OnFailure"), runtime(record("main", "exited", 0)), "Succeeded"),
    Row("OnFailure, failed", pod(policy="OnFailure"), runtime(record("main", "exited", 1)), "Running"),
    Row(
        "Never, one of two done",
        pod("main", "two", policy="Never"),
        runtime(record("main", "exited", 0), record("two")),
        "Running",
    ),
    Row("deleted, all well", pod(), runtime(record("main", "exited", 0)), "Succeeded", finished=True),
    Row("deleted, killed", pod(), runtime(record("main", "exited", 137)), "Failed", finished=True),
    Row("deleted before it began", pod(), runtime(), "Failed", finished=True),
    Row("init runs", pod(init=["a"]), runtime(record("a")), "Pending"),
    Row("init failed, to be restarted", pod(init=["a"]), runtime(record("a", "exited", 1)), "Pending"),
    Row("init failed for good", pod(init=["a"], policy="Never"), runtime(record("a", "exited", 1)), "Failed"),
    Row("init done, main to come", pod(init=["a"]), runtime(record("a", "exited", 0)), "Pending"),
    Row("main runs after init", pod(init=["a"]), runtime(record("a", "exited", 0), record("main")), "Running"),
    Row("main runs, init swept", pod(init=["a"]), runtime(record("main")), "Running"),
    Row("sidecar and main run", pod(init=[sidecar()]), runtime(record("side"), record("main")), "Running"),
    Row("sidecar runs, main to come", pod(init=[sidecar()]), runtime(record("side")), "Pending"),
    Row(
        "main done, sidecar killed",
        pod(init=[sidecar()], policy="Never"),
        runtime(record("side", "exited", 137), record("main", "exited", 0)),
        "Succeeded",
        finished=True,
    ),
    Row("a phase that ended stays", pod(status={"phase": "Succeeded"}), NOTHING, "Succeeded"),
    Row("a failure stays", pod(status={"phase": "Failed"}), runtime(record("main")), "Failed"),
]


@pytest.mark.parametrize("row", PHASES, ids=lambda row: row.name)
def test_the_phase_sums_the_containers_up(row: Row) -> None:
    assert status_of(row.pod, row.runtime, finished=row.finished, waiting=row.waiting).phase == row.phase


def conditions(status: core_v1.PodStatus) -> dict[str, tuple[str, str, str]]:
    return {c.type: (c.status, c.reason or "", c.message or "") for c in status.conditions}


UNREADY = ("False", "ContainersNotReady", "containers with unready status: [main]")
TRUE = ("True", "", "")


@pytest.mark.parametrize(
    ("name", "given", "what", "outcomes", "expected"),
    [
        (
            "new",
            pod(),
            NOTHING,
            {},
            {
                "PodReadyToStartContainers": ("False", "", ""),
                "Initialized": TRUE,
                "Ready": UNREADY,
                "ContainersReady": UNREADY,
                "PodScheduled": TRUE,
            },
        ),
        (
            "running",
            pod(),
            runtime(record("main")),
            {},
            {"PodReadyToStartContainers": TRUE, "Initialized": TRUE, "Ready": TRUE, "ContainersReady": TRUE},
        ),
        (
            "probe says no",
            pod(),
            runtime(record("main")),
            {"main-0": ProbeOutcome(ready=False)},
            {"Ready": UNREADY, "ContainersReady": UNREADY},
        ),
        ("not started", pod(), runtime(record("main")), {"main-0": ProbeOutcome(started=False)}, {"Ready": UNREADY}),
        ("crashed", pod("main", "two"), runtime(record("main", "exited", 1), record("two")), {}, {"Ready": UNREADY}),
        (
            "two unready",
            pod("main", "two"),
            NOTHING,
            {},
            {"Ready": ("False", "ContainersNotReady", "containers with unready status: [main two]")},
        ),
        (
            "init to do",
            pod(init=["a", "b"]),
            runtime(record("a", "exited", 0)),
            {},
            {"Initialized": ("False", "ContainersNotInitialized", "containers with incomplete status: [b]")},
        ),
        ("init done", pod(init=["a"]), runtime(record("a", "exited", 0)), {}, {"Initialized": TRUE}),
        (
            "done",
            pod(policy="Never"),
            runtime(record("main", "exited", 0)),
            {},
            {
                "Initialized": ("True", "PodCompleted", ""),
                "Ready": ("False", "PodCompleted", ""),
                "ContainersReady": ("False", "PodCompleted", ""),
            },
        ),
        (
            "failed",
            pod(policy="Never"),
            runtime(record("main", "exited", 1)),
            {},
            {"Ready": ("False", "PodFailed", "")},
        ),
        (
            "sidecar unready",
            pod(init=[sidecar()]),
            runtime(record("side"), record("main")),
            {"side-0": ProbeOutcome(ready=False)},
            {"Ready": ("False", "ContainersNotReady", "containers with unready status: [side]")},
        ),
        (
            "gate missing",
            pod(readinessGates=[{"conditionType": "x/y"}]),
            runtime(record("main")),
            {},
            {
                "ContainersReady": TRUE,
                "Ready": (
                    "False",
                    "ReadinessGatesNotReady",
                    'corresponding condition of pod readiness gate "x/y" does not exist.',
                ),
            },
        ),
        (
            "gate closed",
            pod(readinessGates=[{"conditionType": "x/y"}], status={"conditions": [{"type": "x/y", "status": "False"}]}),
            runtime(record("main")),
            {},
            {
                "Ready": (
                    "False",
                    "ReadinessGatesNotReady",
                    'the status of pod readiness gate "x/y" is not "True", but False',
                ),
                "x/y": ("False", "", ""),
            },
        ),
        (
            "gate open",
            pod(readinessGates=[{"conditionType": "x/y"}], status={"conditions": [{"type": "x/y", "status": "True"}]}),
            runtime(record("main")),
            {},
            {"Ready": TRUE},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_conditions_have_upstreams_reasons_and_words(
    name: str, given: core_v1.Pod, what: PodRuntime, outcomes: dict[str, ProbeOutcome], expected: dict[str, Any]
) -> None:
    found = conditions(status_of(given, what, outcomes=outcomes))
    assert {key: found[key] for key in expected} == expected


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    first = status_of(pod(), NOTHING)
    later = msgspec.structs.replace(pod(), status=first)
    second = pod_status(later, runtime(record("main")), StatusInputs(), NODE, NOW + 60)
    times = {c.type: c.last_transition_time for c in second.conditions}
    assert times["PodScheduled"] == "1970-01-01T00:16:40Z" == times["Initialized"]
    assert times["Ready"] == times["ContainersReady"] == "1970-01-01T00:17:40Z"
    assert second.start_time == first.start_time == "1970-01-01T00:16:40Z"


def container(status: core_v1.PodStatus) -> core_v1.ContainerStatus:
    return status.container_statuses[0]


def test_a_waiting_container_has_its_reason() -> None:
    assert container(status_of(pod(), NOTHING)).state.waiting.reason == "ContainerCreating"  # type: ignore[union-attr]
    assert container(status_of(pod(init=["a"]), NOTHING)).state.waiting.reason == "PodInitializing"  # type: ignore[union-attr]
    waiting = {"main": Waiting("ErrImagePull", "no such image")}
    state = container(status_of(pod(), runtime(), waiting=waiting)).state
    assert state and state.waiting
    assert (state.waiting.reason, state.waiting.message) == ("ErrImagePull", "no such image")


def test_a_crashed_container_in_back_off_shows_its_end_as_the_last_state() -> None:
    crashed = runtime(record("main", "exited", 3, n=2, message="oops"))
    shown = container(status_of(pod(), crashed, waiting={"main": BACK_OFF}))
    assert shown.state and shown.state.waiting and shown.state.waiting.reason == "CrashLoopBackOff"
    assert shown.last_state and shown.last_state.terminated
    assert (shown.last_state.terminated.exit_code, shown.last_state.terminated.message) == (3, "oops")
    assert shown.last_state.terminated.reason == "Error"
    assert shown.restart_count == 2 and not shown.ready and shown.started is False
    assert shown.container_id == "containerd://main-2"


def test_a_restarted_container_shows_the_instance_before() -> None:
    shown = container(status_of(pod(), runtime(record("main", "exited", 137, reason="OOMKilled"), record("main", n=1))))
    assert shown.state and shown.state.running and shown.last_state and shown.last_state.terminated
    assert shown.last_state.terminated.reason == "OOMKilled" and shown.restart_count == 1 and shown.ready


def test_a_container_that_the_runtime_lost_keeps_its_count() -> None:
    reported = status_of(pod(), runtime(record("main", n=3)))
    lost = msgspec.structs.replace(pod(), status=reported)
    shown = container(status_of(lost, NOTHING))
    assert shown.restart_count == 3
    assert shown.last_state and shown.last_state.terminated
    assert (shown.last_state.terminated.exit_code, shown.last_state.terminated.reason) == (
        137,
        "ContainerStatusUnknown",
    )


def test_a_lost_container_that_never_started_is_not_reported_as_terminated() -> None:
    given = pod(policy="Never")
    reported = status_of(given, runtime(record("main", "created")))
    assert container(reported).container_id, "the status contains it"
    status = status_of(msgspec.structs.replace(given, status=reported), runtime())
    shown = container(status)
    assert status.phase == "Pending"
    assert shown.state and shown.state.waiting and not (shown.last_state and shown.last_state.terminated)


def test_a_pod_that_ran_stays_running_while_what_was_lost_is_made_again() -> None:
    reported = status_of(pod(), runtime(record("main")))
    lost = msgspec.structs.replace(pod(), status=reported)
    reported = status_of(lost, NOTHING)
    assert reported.phase == "Running"
    lost = msgspec.structs.replace(pod(), status=reported)
    made = status_of(lost, runtime(record("main", "created", n=1)))
    assert made.phase == "Running"
    ended = container(made).last_state
    assert ended and ended.terminated and ended.terminated.reason == "ContainerStatusUnknown"


def test_a_pod_that_is_initialised_anew_in_a_new_sandbox_is_pending_again_as_upstream_has_it() -> None:
    given = pod(init=["a"], status={"phase": "Running"})
    old = (record("a", "exited", 0), record("main", "exited", 137))
    sandboxes = (sandbox(1), sandbox(0, ready=False))
    assert status_of(given, runtime(*old, record("a", n=1, sandbox="s1"), sandboxes=sandboxes)).phase == "Pending"


def test_addresses_are_the_sandboxes_or_the_nodes() -> None:
    status = status_of(pod(), runtime(sandboxes=(sandbox(ips=("10.244.0.9", "fd00::9")),)))
    assert (status.pod_ip, [ip.ip for ip in status.pod_ips]) == ("10.244.0.9", ["10.244.0.9", "fd00::9"])
    assert (status.host_ip, [ip.ip for ip in status.host_ips]) == ("192.0.2.1", ["192.0.2.1"])
    host = status_of(pod(hostNetwork=True), runtime(sandboxes=(sandbox(ips=()),)))
    assert host.pod_ip == "192.0.2.1"


def test_an_end_gives_the_phase_and_its_reason() -> None:
    stopped = runtime(record("main", "exited", 137))
    status = status_of(pod(), stopped, end=End("Failed", "Evicted", "The node was low on memory"))
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", "The node was low on memory")


def test_a_terminal_phase_is_reported_when_the_last_container_has_stopped() -> None:
    end = End("Failed", "Evicted", "The node was low on memory", disruption="The node was low on memory")

    def reported(*records: ContainerRecord) -> tuple[str | None, str | None, bool]:
        status = status_of(pod(), runtime(*records), end=end)
        return status.phase, status.reason, any(c.type == "DisruptionTarget" for c in status.conditions)

    assert reported(record("main")) == ("Running", None, False)
    assert reported(record("main", "exited", 137)) == ("Failed", "Evicted", True)


def test_a_container_that_never_ran_counts_as_failed_when_the_pod_has_ended() -> None:
    late = End("Failed", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
    state = container(status_of(pod(), runtime(), finished=True, end=late)).state
    assert state and state.terminated
    assert (state.terminated.exit_code, state.terminated.reason) == (137, "ContainerStatusUnknown")
    # Where initialising failed, nobody expected it to run.
    failed = pod(init=["a"], policy="Never")
    state = container(status_of(failed, runtime(record("a", "exited", 1)), finished=True)).state
    assert state and state.waiting and state.waiting.reason == "PodInitializing"


def test_a_container_without_requests_shows_empty_resources() -> None:
    shown = container(status_of(pod(), runtime(record("main"))))
    assert msgspec.to_builtins(shown)["resources"] == {}


def test_the_patch_has_only_what_changed_and_leaves_others_conditions_alone() -> None:
    old = status_of(pod(status={"conditions": [{"type": "x/y", "status": "True"}]}), runtime())
    new = status_of(msgspec.structs.replace(pod(), status=old), runtime(record("main")))
    patch = difference(old, new)
    assert patch is not None
    assert set(patch) == {"phase", "conditions", "containerStatuses"}
    assert [c["type"] for c in patch["conditions"]] == ["Ready", "ContainersReady"]
    assert patch["conditions"][0]["reason"] is None and patch["conditions"][0]["status"] == "True"
    assert difference(new, new) is None


def test_the_patch_of_resources_takes_away_what_is_gone() -> None:
    old = core_v1.PodStatus(
        resources=core_v1.ResourceRequirements(limits={"cpu": "1"}, requests={"cpu": "1", "memory": "1Gi"})
    )
    new = core_v1.PodStatus(resources=core_v1.ResourceRequirements(requests={"cpu": "2", "memory": "1Gi"}))
    assert difference(old, new) == {"resources": {"limits": None, "requests": {"cpu": "2"}}}
    assert difference(core_v1.PodStatus(), new) == {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    assert difference(new, core_v1.PodStatus()) == {"resources": None}


def test_the_patch_of_addresses_takes_the_old_one_away() -> None:
    old = core_v1.PodStatus(pod_ip="10.0.0.1", pod_ips=[core_v1.PodIP(ip="10.0.0.1")])
    new = core_v1.PodStatus(pod_ip="10.0.0.2", pod_ips=[core_v1.PodIP(ip="10.0.0.2")])
    assert difference(old, new) == {
        "podIP": "10.0.0.2",
        "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
    }


def test_claim_statuses_of_the_control_plane_are_kept() -> None:
    held = pod()
    held.status.resource_claim_statuses = [core_v1.PodResourceClaimStatus(name="gpu", resource_claim_name="web-gpu-x")]
    reported = core_v1.PodExtendedResourceClaimStatus(resource_claim_name="web-extended-resources-x")
    held.status.extended_resource_claim_status = reported
    found = status_of(held, runtime(record("main")))
    assert found.resource_claim_statuses == held.status.resource_claim_statuses
    assert found.extended_resource_claim_status == reported


DEBUG = pod(policy="Never")
DEBUG.spec.ephemeral_containers = [core_v1.EphemeralContainer(name="debug")]


@pytest.mark.parametrize(
    ("given", "others"),
    [
        (pod(init=[sidecar()], policy="Never"), [record("side")]),
        (pod(init=[sidecar()], policy="Never"), [record("side", "created")]),
        (DEBUG, [record("debug")]),
    ],
    ids=["sidecar runs", "sidecar starts", "debug container runs"],
)
@pytest.mark.parametrize("end", [None, End("Failed", "Evicted", "disk")], ids=["by itself", "evicted"])
def test_no_terminal_phase_is_reported_while_a_container_can_run(
    given: core_v1.Pod, others: list[ContainerRecord], end: End | None
) -> None:
    given = msgspec.structs.replace(given, status=core_v1.PodStatus(phase="Running"))
    containers = [*others, record("main", "exited", 0)]
    assert status_of(given, runtime(*containers), end=end).phase == "Running"
    stopped = [replace(one, state=State.EXITED) for one in containers]
    assert status_of(given, runtime(*stopped), end=end).phase == ("Failed" if end else "Succeeded")
