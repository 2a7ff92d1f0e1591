"""The pod state machine as tables: a situation, and what is to be done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.interfaces import ProbeOutcome
from agent.lifecycle import End, Plan, Situation, plan
from agent.runtime_records import PodRuntime
from kube.api import core_v1
from tests.unit.agent.pods import NOTHING, pod, record, runtime, sandbox, sidecar

NOW = 200.0


@dataclass(frozen=True)
class Case:
    """A row: `start`, `kill` by name; `sandbox` the attempt to make; `end` the phase given ("" for whatever it comes to)."""

    name: str
    pod: core_v1.Pod
    runtime: PodRuntime
    start: list[str] = field(default_factory=list)
    kill: list[str] = field(default_factory=list)
    sandbox: int | None = None
    end: str | None = None
    backing_off: list[str] = field(default_factory=list)
    wake: float | None = None
    stop: bool = False
    outcomes: dict[str, ProbeOutcome] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


FAILED_LIVENESS = ProbeOutcome(failed="Liveness")
NOT_STARTED = ProbeOutcome(started=False, ready=False)

TABLE = [
    # -- the sandbox
    Case("a new pod gets a sandbox", pod(), NOTHING, sandbox=0),
    Case("a sandbox that failed to be made waits", pod(), NOTHING, wake=205.0, more={"retry_at": {"": 205.0}}),
    Case("a sandbox that is due again is made", pod(), NOTHING, sandbox=0, more={"retry_at": {"": 199.0}}),
    Case(
        "a dead sandbox is replaced",
        pod(),
        runtime(record("main", "exited", 137), sandboxes=(sandbox(ready=False),)),
        sandbox=1,
        stop=True,
    ),
    Case(
        "a sandbox without an address is replaced",
        pod(),
        runtime(sandboxes=(sandbox(ips=()),)),
        sandbox=1,
        stop=True,
    ),
    Case(
        "a dead sandbox of a pod that never restarts ends it",
        pod(policy="Never"),
        runtime(record("main", "exited", 137), sandboxes=(sandbox(ready=False),)),
        end="",
    ),
    Case(
        "a dead sandbox before anything ran is replaced whatever the policy",
        pod(policy="Never"),
        runtime(sandboxes=(sandbox(ready=False),)),
        sandbox=1,
        stop=True,
    ),
    Case(
        "a dead sandbox is replaced whatever the policy where a container was made and none ever ran",
        pod(policy="Never"),
        runtime(record("main", "created"), sandboxes=(sandbox(ready=False),)),
        sandbox=1,
        stop=True,
    ),
    Case(
        "a dead sandbox of a job that is done is not replaced",
        pod(policy="OnFailure"),
        runtime(record("main", "exited", 0), sandboxes=(sandbox(ready=False),)),
        end="",
    ),
    Case(
        "a dead sandbox of a job that is not done is replaced",
        pod("one", "two", policy="OnFailure"),
        runtime(record("one", "exited", 0), record("two", "exited", 1), sandboxes=(sandbox(ready=False),)),
        sandbox=1,
        stop=True,
    ),
    # -- main containers
    Case("containers start in an empty sandbox", pod("one", "two"), runtime(), start=["one", "two"]),
    Case("what runs is left alone", pod(), runtime(record("main"))),
    Case("the missing one is started", pod("one", "two"), runtime(record("one")), start=["two"]),
    Case(
        "one that was created and never started is started", pod(), runtime(record("main", "created")), start=["main"]
    ),
    Case("Always restarts after success", pod(), runtime(record("main", "exited", 0)), start=["main"]),
    Case("Always restarts after failure", pod(), runtime(record("main", "exited", 1)), start=["main"]),
    Case(
        "OnFailure restarts after failure",
        pod(policy="OnFailure"),
        runtime(record("main", "exited", 1)),
        start=["main"],
    ),
    Case("OnFailure ends after success", pod(policy="OnFailure"), runtime(record("main", "exited", 0)), end=""),
    Case("Never ends after success", pod(policy="Never"), runtime(record("main", "exited", 0)), end=""),
    Case("Never ends after failure", pod(policy="Never"), runtime(record("main", "exited", 1)), end=""),
    Case(
        "Never waits for the others",
        pod("one", "two", policy="Never"),
        runtime(record("one", "exited", 1), record("two")),
    ),
    Case(
        "OnFailure with one done and one failed restarts the failed one",
        pod("one", "two", policy="OnFailure"),
        runtime(record("one", "exited", 0), record("two", "exited", 2)),
        start=["two"],
    ),
    Case(
        "a container in back-off waits",
        pod(),
        runtime(record("main", "exited", 1)),
        backing_off=["main"],
        wake=210.0,
        more={"restart_at": lambda name, r: 210.0},
    ),
    Case(
        "a back-off that is over lets it start",
        pod(),
        runtime(record("main", "exited", 1)),
        start=["main"],
        more={"restart_at": lambda name, r: 200.0},
    ),
    Case(
        "the back-off of one does not hold the other",
        pod("one", "two"),
        runtime(record("one", "exited", 1)),
        start=["two"],
        backing_off=["one"],
        wake=210.0,
        more={"restart_at": lambda name, r: 210.0},
    ),
    Case(
        "a start that failed is tried again later",
        pod(),
        runtime(),
        wake=203.0,
        more={"retry_at": {"main": 203.0}},
    ),
    Case(
        "a changed image replaces the container",
        pod({"name": "main", "image": "other"}),
        runtime(record("main")),
        kill=["main"],
    ),
    Case(
        "a failed liveness probe kills",
        pod(),
        runtime(record("main")),
        kill=["main"],
        outcomes={"main-0": FAILED_LIVENESS},
    ),
    Case(
        "a failed liveness probe kills where nothing restarts, too",
        pod(policy="Never"),
        runtime(record("main")),
        kill=["main"],
        outcomes={"main-0": FAILED_LIVENESS},
    ),
    Case(
        "a container that is not ready is left alone",
        pod(),
        runtime(record("main")),
        outcomes={"main-0": ProbeOutcome(ready=False)},
    ),
    # -- rules of a container's own
    Case(
        "a container's own policy wins over the pod's",
        pod({"name": "main", "restartPolicy": "Never"}),
        runtime(record("main", "exited", 1)),
        end="",
    ),
    Case(
        "an exit code that a rule names restarts",
        pod(
            {
                "name": "main",
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            }
        ),
        runtime(record("main", "exited", 42)),
        start=["main"],
    ),
    Case(
        "an exit code that no rule names follows the policy",
        pod(
            {
                "name": "main",
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            }
        ),
        runtime(record("main", "exited", 1)),
        end="",
    ),
    Case(
        "NotIn restarts for every other code",
        pod(
            {
                "name": "main",
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}],
            }
        ),
        runtime(record("main", "exited", 9)),
        start=["main"],
    ),
    # -- init containers
    Case("the first init container starts alone", pod(init=["a", "b"]), runtime(), start=["a"]),
    Case("a running init container holds the rest", pod(init=["a", "b"]), runtime(record("a"))),
    Case("the second follows the first", pod(init=["a", "b"]), runtime(record("a", "exited", 0)), start=["b"]),
    Case(
        "the main container follows the last",
        pod(init=["a", "b"]),
        runtime(record("a", "exited", 0), record("b", "exited", 0)),
        start=["main"],
    ),
    Case("a failed init container is tried again", pod(init=["a"]), runtime(record("a", "exited", 1)), start=["a"]),
    Case(
        "a failed init container backs off",
        pod(init=["a"]),
        runtime(record("a", "exited", 1)),
        backing_off=["a"],
        wake=230.0,
        more={"restart_at": lambda name, r: 230.0},
    ),
    Case(
        "a failed init container of a pod that never restarts fails it",
        pod(init=["a"], policy="Never"),
        runtime(record("a", "exited", 1)),
        end="Failed",
    ),
    Case(
        "an init container that succeeded stays done under Always",
        pod(init=["a"]),
        runtime(record("a", "exited", 0)),
        start=["main"],
    ),
    Case(
        "init containers are not run again when main containers restart",
        pod(init=["a"]),
        runtime(record("a", "exited", 0), record("main", "exited", 1)),
        start=["main"],
    ),
    Case(
        "init containers whose records were swept are not run again",
        pod(init=["a"]),
        runtime(record("main")),
    ),
    Case(
        "init containers run again in a new sandbox",
        pod(init=["a"]),
        runtime(
            record("a", "exited", 0), record("main", "exited", 137), sandboxes=(sandbox(1), sandbox(0, ready=False))
        ),
        start=["a"],
    ),
    # -- sidecars
    Case("a sidecar starts in its place", pod(init=[sidecar(), "b"]), runtime(), start=["side"]),
    Case("a started sidecar lets the next one start", pod(init=[sidecar(), "b"]), runtime(record("side")), start=["b"]),
    Case(
        "a sidecar whose startup probe has not succeeded holds the rest",
        pod(init=[{**sidecar(), "startupProbe": {"exec": {"command": ["x"]}}}, "b"]),
        runtime(record("side")),
        outcomes={"side-0": NOT_STARTED},
    ),
    Case(
        "a startup probe that nobody has asked yet holds the rest",
        pod(init=[{**sidecar(), "startupProbe": {"exec": {"command": ["x"]}}}, "b"]),
        runtime(record("side")),
    ),
    Case(
        "main containers start beside a started sidecar", pod(init=[sidecar()]), runtime(record("side")), start=["main"]
    ),
    Case(
        "a sidecar that exits is restarted beside the main container",
        pod(init=[sidecar()]),
        runtime(record("side", "exited", 0), record("main")),
        start=["side"],
    ),
    Case(
        "a sidecar restarts in a pod that never restarts",
        pod(init=[sidecar()], policy="Never"),
        runtime(record("side", "exited", 1), record("main")),
        start=["side"],
    ),
    Case(
        "a pod whose main containers are done ends though a sidecar runs",
        pod(init=[sidecar()], policy="Never"),
        runtime(record("side"), record("main", "exited", 0)),
        end="",
    ),
    Case(
        "a sidecar's failed liveness probe kills it alone",
        pod(init=[sidecar()]),
        runtime(record("side"), record("main")),
        kill=["side"],
        outcomes={"side-0": FAILED_LIVENESS},
    ),
    # -- debug containers
    Case(
        "a debug container starts beside what runs",
        pod(ephemeralContainers=[{"name": "debug", "image": "x"}]),
        runtime(record("main")),
        start=["debug"],
    ),
    Case(
        "a debug container is never restarted",
        pod(ephemeralContainers=[{"name": "debug", "image": "x"}]),
        runtime(record("main"), record("debug", "exited", 1)),
    ),
    # -- the deadline
    Case(
        "a pod past its deadline ends",
        pod(activeDeadlineSeconds=50, status={"startTime": "1970-01-01T00:02:00Z"}),
        runtime(record("main")),
        end="Failed",
    ),
    Case(
        "a pod before its deadline is looked at again then",
        pod(activeDeadlineSeconds=500, status={"startTime": "1970-01-01T00:02:00Z"}),
        runtime(record("main")),
        wake=620.0,
    ),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_what_a_pod_needs_next(case: Case) -> None:
    decided = plan(Situation(pod=case.pod, runtime=case.runtime, now=NOW, outcomes=case.outcomes, **case.more))
    assert [start.name for start in decided.start] == case.start
    assert [kill.name for kill in decided.kill] == case.kill
    assert decided.new_sandbox == case.sandbox
    assert decided.stop_sandbox is case.stop
    assert (decided.end.phase if decided.end else None) == case.end
    assert list(decided.backing_off) == case.backing_off
    assert decided.wake_at == case.wake


sized = core_v1.ResourceRequirements
SMALL = sized(requests={"cpu": "100m"})
LARGE = {"requests": {"cpu": "200m"}}


def test_a_changed_size_is_applied_in_place_or_by_a_restart_or_held() -> None:
    what, actuated = runtime(record("main")), {"main-0": SMALL}
    grown = pod({"name": "main", "resources": LARGE})
    decided = _plan(grown, what, actuated=actuated)
    assert [r.name for r in decided.resize] == ["main"] and not decided.kill
    assert not _plan(grown, what).resize, "what was applied is not known"
    same = pod({"name": "main", "resources": {"requests": {"cpu": "0.1"}}})
    assert not _plan(same, what, actuated=actuated).resize
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    restarted = _plan(pod({"name": "main", "resources": LARGE, "resizePolicy": policy}), what, actuated=actuated)
    (kill,) = restarted.kill
    assert kill.message == "Container main resize requires restart" and kill.for_resize and not restarted.resize


def test_a_limit_of_the_whole_pod_resizes_the_containers_that_inherit_it() -> None:
    what = runtime(record("main"), record("own"))
    wanted = pod(
        {"name": "main"}, {"name": "own", "resources": {"limits": {"cpu": "1"}}}, resources={"limits": {"cpu": "2"}}
    )
    one, two = ({"limits": {"cpu": amount}} for amount in ("1", "2"))
    assert [r.name for r in _plan(wanted, what, actuated={"main-0": sized(**one), "own-0": sized(**one)}).resize] == [
        "main"
    ]
    assert not _plan(wanted, what, actuated={"main-0": sized(**two), "own-0": sized(**one)}).resize


def _plan(pod: core_v1.Pod, runtime: PodRuntime, **more: Any) -> Plan:
    return plan(Situation(pod=pod, runtime=runtime, now=NOW, **more))


def test_a_restart_counts_on_from_the_last_instance_even_of_an_old_sandbox() -> None:
    old = runtime(record("main", "exited", 1, n=4), sandboxes=(sandbox(1), sandbox(0, ready=False)))
    assert _plan(pod(), old).start[0].restart_count == 5


def test_killing_events_contain_the_reason_and_whether_a_restart_follows() -> None:
    outcome = {"main-0": ProbeOutcome(failed="Startup", grace=7)}
    kill = _plan(pod(), runtime(record("main")), outcomes=outcome).kill[0]
    assert (kill.message, kill.grace) == ("Container main failed startup probe, will be restarted", 7)
    kill = _plan(pod(policy="Never"), runtime(record("main")), outcomes=outcome).kill[0]
    assert kill.message == "Container main failed startup probe"
    kill = _plan(pod({"name": "main", "image": "new"}), runtime(record("main"))).kill[0]
    assert kill.message == "Container main definition changed, will be restarted"


def test_a_pod_over_its_active_deadline_fails_with_the_reason() -> None:
    over = pod(activeDeadlineSeconds=1, status={"startTime": "1970-01-01T00:00:01Z"})
    assert _plan(over, runtime(record("main"))).end == End(
        "Failed", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
    )
