"""The pod state machine against the fake runtime with random steps: invariants in any order of events.

Containers end with any code, sandboxes die, probes fail, time passes, and the agent stops in the middle of what it does and
forgets all that is not in the runtime or in the API. Hypothesis looks for the shortest story that breaks a rule.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent import runtime_messages, runtime_records
from agent.backoff import BackOff
from agent.interfaces import ProbeOutcome
from agent.lifecycle import End, Kind, Plan, Situation, is_sidecar, plan, policy_of, removal_order
from agent.runtime_records import PodRuntime, State
from agent.status.container import StatusInputs
from agent.status.phase import ENDED_PHASES
from agent.status.pod import NodeFacts, pod_status
from cri.fake.images import FakeImages
from cri.fake.runtime import FakeContainers
from cri.messages import api
from kube.api import core_v1
from kube.clock import parse_time
from tests.unit.agent.pods import pod

IMAGE = "busybox:1"
RULES = [
    [],
    [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
    [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}],
]


@st.composite
def containers(draw: st.DrawFn, prefix: str, least: int, sidecars: bool) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(least, 3))):
        made: dict[str, Any] = {"name": f"{prefix}{number}", "image": IMAGE}
        policies = ["Always"] if sidecars else ["Never", "OnFailure"]
        if draw(st.booleans()):
            made["restartPolicy"] = draw(st.sampled_from(policies))
            made["restartPolicyRules"] = draw(st.sampled_from(RULES)) if made["restartPolicy"] != "Always" else []
        found.append(made)
    return found


class PodMachine(RuleBasedStateMachine):
    """One pod, its runtime, and an agent that may be killed at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 1_000_000.0
        images = FakeImages()
        images.add(IMAGE)
        self.fake = FakeContainers(images, asyncio.sleep, lambda: int(self.now * 1e9))
        self.back_off = BackOff()
        self.outcomes: dict[str, ProbeOutcome] = {}
        self.end: End | None = None
        self.ran: Counter[tuple[str, str]] = Counter()
        """Number of starts of a container in a sandbox."""
        self.counts: dict[str, int] = {}
        self.attempt = 0

    def call(self, name: str, request: Any) -> Any:
        return self.loop.run_until_complete(getattr(self.fake, name)(request))

    @initialize(
        init=containers("i", 0, True),
        main=containers("m", 1, False),
        policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    )
    def a_pod(self, init: list[dict[str, Any]], main: list[dict[str, Any]], policy: str) -> None:
        self.pod = pod(*main, init=list(init), policy=policy)

    # -- what the agent sees and does ----------------------------------------------------------------------------------
    def runtime(self) -> PodRuntime:
        found = PodRuntime()
        for sandbox in self.fake.sandboxes.values():
            found = found.with_sandbox(runtime_messages.sandbox_record(sandbox.status))
        for container in self.fake.containers.values():
            found = found.with_container(runtime_messages.container_record(container.status, container.sandbox_id))
        return found

    def decide(self) -> Plan:
        return plan(
            Situation(
                pod=self.pod,
                runtime=self.runtime(),
                now=self.now,
                outcomes=self.outcomes,
                restart_at=lambda name, record: self.back_off.ready_at(name, record.finished_at),
            )
        )

    def tell(self, finished: bool = False) -> None:
        """Report the status, and check it against the last report."""
        before = self.pod.status
        known = StatusInputs(outcomes=self.outcomes, ended=self.end is not None)
        status = pod_status(self.pod, self.runtime(), known, NodeFacts(), self.now, end=self.end, finished=finished)
        if before.phase in ENDED_PHASES:
            assert status.phase == before.phase, "a pod that has ended has ended"
        if before.phase == "Running" and status.phase == "Pending":
            assert self.attempt > 0, "only a new sandbox makes a pod start anew"
        for shown in (*status.container_statuses, *status.init_container_statuses):
            assert shown.restart_count >= self.counts.get(shown.name, 0), "restarts are not taken back"
            self.counts[shown.name] = shown.restart_count
        for condition in status.conditions:
            old = next((c for c in before.conditions if c.type == condition.type), None)
            assert condition.last_transition_time is not None
            if old is not None and old.status == condition.status:
                assert condition.last_transition_time == old.last_transition_time
            moment = parse_time(condition.last_transition_time).timestamp()
            assert moment <= self.now
        ready = {c.type: c.status for c in status.conditions}
        assert ready["Ready"] == "False" or ready["ContainersReady"] == "True"
        assert ready["ContainersReady"] == "False" or status.phase == "Running"
        self.pod = msgspec.structs.replace(self.pod, status=status)

    @rule(steps=st.integers(0, 12))
    def the_agent_works(self, steps: int) -> None:
        """Carry plans out for so many steps; then the agent may be gone in the middle of one."""
        for _ in range(6):
            if self.end is not None:
                return
            self.tell()
            decided = self.decide()
            if decided.end is not None:
                self.end = decided.end
                return
            actions = [*self.actions(decided)]
            if not actions:
                return
            for action in actions:
                if steps == 0:
                    return
                steps -= 1
                action()

    @rule()
    def the_agent_works_to_the_end(self) -> None:
        self.the_agent_works(1000)

    @rule(code=st.sampled_from([0, 1, 42]))
    def init_containers_and_others_end_and_the_agent_goes_on(self, code: int) -> None:
        """The most frequent steps: start, an exit, the reaction to it."""
        self.the_agent_works(1000)
        alive = self.runtime().alive
        first = {c.name for c in self.pod.spec.init_containers if not is_sidecar(c)}
        for record in alive:
            if record.name in first or record is alive[0]:
                self.loop.run_until_complete(self.fake.crash(record.id, 0 if record.name in first else code))
        self.the_agent_works(1000)

    def actions(self, decided: Plan) -> list[Any]:
        """Return the plan's steps in the order in which a worker takes them."""
        alive = self.runtime().alive
        found: list[Any] = []
        if decided.stop_sandbox:
            found += [lambda s=s: self.stop_sandbox(s.id) for s in self.runtime().sandboxes]
        if decided.new_sandbox is not None:
            return [*found, lambda: self.make_sandbox(decided.new_sandbox or 0)]
        if (trigger := decided.restart_all) is not None:
            found.append(lambda: self.back_off.next(trigger.name, self.now))
            found += [lambda r=r: self.stop(r.id) for r in alive]
            found.append(self.tell)
            return [*found, *(lambda r=r: self.remove(r.id) for r in removal_order(self.runtime(), trigger))]
        found += [lambda k=k: self.stop(k.id) for k in decided.kill]
        for start in decided.start:
            found += [lambda s=start: self.create(s.name, s.kind, s.restart_count), lambda s=start: self.start(s.name)]
            if start.kind is Kind.INIT:
                break
        return found + [lambda c=c: self.remove(c) for c in decided.remove]

    def make_sandbox(self, attempt: int) -> None:
        assert not any(s.ready for s in self.runtime().sandboxes), "one sandbox at a time"
        config = api.PodSandboxConfig(metadata=api.PodSandboxMetadata(name="web", uid="uid-1", attempt=attempt))
        self.call("run_pod_sandbox", api.RunPodSandboxRequest(config=config))
        self.attempt = attempt

    def stop_sandbox(self, sandbox_id: str) -> None:
        self.call("stop_pod_sandbox", api.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))

    def create(self, name: str, kind: Kind, count: int) -> None:
        before = self.runtime()
        sandbox = before.sandbox
        assert sandbox is not None and sandbox.ready
        latest = before.latest(name)
        if latest is not None and latest.exited:
            self.back_off.next(name, self.now)
        labels = {runtime_records.CONTAINER_NAME: name}
        annotations = {runtime_records.RESTART_COUNT: str(count)}
        config = api.ContainerConfig(
            metadata=api.ContainerMetadata(name=name, attempt=count),
            image=api.ImageSpec(image=IMAGE),
            command=["cat"],
            labels=labels,
            annotations=annotations,
        )
        self.check_order(before, name, kind)
        self.call("create_container", api.CreateContainerRequest(pod_sandbox_id=sandbox.id, config=config))

    def check_order(self, before: PodRuntime, name: str, kind: Kind) -> None:
        """Check that a container is started only when its turn has come, and again only where it may be."""
        sandbox = before.sandbox
        assert sandbox is not None
        begun = any(r.name.startswith("m") and r.sandbox_id == sandbox.id for r in before.containers)
        for init in self.pod.spec.init_containers:
            if init.name == name:
                break
            record = before.latest(init.name)
            if begun:
                continue
            assert record is not None and record.sandbox_id == sandbox.id, f"{name} came before {init.name}"
            if is_sidecar(init):
                assert record.running, f"{name} came while {init.name} did not run"
            else:
                assert record.exited and record.exit_code == 0, f"{name} came before {init.name} was done"
        every = (*self.pod.spec.init_containers, *self.pod.spec.containers)
        container = next(c for c in every if c.name == name)
        latest = before.latest(name)
        if latest is not None and latest.state is State.EXITED and latest.sandbox_id == sandbox.id:
            assert self.may_run_again(container, latest.exit_code), f"{name} must not start again"

    def may_run_again(self, container: core_v1.Container, code: int) -> bool:
        """Say by the API's own words whether a container that ended with a code is started again."""
        for one in container.restart_policy_rules:
            if one.exit_codes is not None and code in one.exit_codes.values:
                return True
        policy = container.restart_policy or self.pod.spec.restart_policy
        if container in self.pod.spec.init_containers and container.restart_policy is None and policy == "Always":
            policy = "OnFailure"
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    def start(self, name: str) -> None:
        record = self.runtime().latest(name)
        assert record is not None
        self.call("start_container", api.StartContainerRequest(container_id=record.id))
        self.ran[record.sandbox_id, name] += 1

    def stop(self, container_id: str) -> None:
        self.call("stop_container", api.StopContainerRequest(container_id=container_id))

    def remove(self, container_id: str) -> None:
        record = self.runtime().find(container_id)
        assert record is None or not record.running, "what runs is not removed"
        self.call("remove_container", api.RemoveContainerRequest(container_id=container_id))

    # -- what happens to it --------------------------------------------------------------------------------------------
    @precondition(lambda self: self.runtime().alive)
    @rule(which=st.integers(0, 9), code=st.sampled_from([0, 0, 1, 42, 137]))
    def a_container_ends(self, which: int, code: int) -> None:
        alive = self.runtime().alive
        self.loop.run_until_complete(self.fake.crash(alive[which % len(alive)].id, code))

    @precondition(lambda self: self.runtime().sandboxes)
    @rule()
    def the_sandbox_dies(self) -> None:
        self.stop_sandbox(self.runtime().sandboxes[0].id)

    @precondition(lambda self: self.runtime().alive)
    @rule(which=st.integers(0, 9), failed=st.sampled_from(["", "Liveness", "Startup"]), started=st.booleans())
    def a_probe_speaks(self, which: int, failed: str, started: bool) -> None:
        alive = self.runtime().alive
        outcome = ProbeOutcome(started=started, ready=started and not failed, failed=failed)
        self.outcomes[alive[which % len(alive)].id] = outcome

    @rule(seconds=st.sampled_from([0.5, 11.0, 301.0, 1300.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_agent_forgets(self) -> None:
        """The agent starts anew: back-off and probes' verdicts are gone."""
        self.back_off, self.outcomes = BackOff(), {}

    @precondition(lambda self: self.end is not None)
    @rule()
    def the_end_is_carried_out(self) -> None:
        for record in self.runtime().alive:
            self.stop(record.id)
        for sandbox in self.runtime().sandboxes:
            self.stop_sandbox(sandbox.id)
        self.tell(finished=True)
        assert self.pod.status.phase in ENDED_PHASES

    @precondition(lambda self: self.pod.status.phase in ENDED_PHASES)
    @rule()
    def what_is_left_is_swept(self) -> None:
        """The dead containers of a pod that has ended are removed; its reported status stays."""
        for record in self.runtime().containers:
            if not record.running:
                self.remove(record.id)
        self.tell(finished=True)

    # -- what always holds ---------------------------------------------------------------------------------------------
    @invariant()
    def one_instance_runs_at_a_time(self) -> None:
        names = Counter(record.name for record in self.runtime().alive)
        assert all(number == 1 for number in names.values()), names

    @invariant()
    def one_sandbox_is_there_at_a_time(self) -> None:
        assert sum(s.ready for s in self.runtime().sandboxes) <= 1

    @invariant()
    def what_never_restarts_runs_once(self) -> None:
        for container in self.pod.spec.containers if hasattr(self, "pod") else ():
            if policy_of(self.pod, container) == "Never" and not self._rules():
                assert all(n == 1 for (_, name), n in self.ran.items() if name == container.name)

    def _rules(self) -> bool:
        spec: core_v1.PodSpec = self.pod.spec
        return any(c.restart_policy_rules for c in (*spec.containers, *spec.init_containers))

    def teardown(self) -> None:
        self.loop.run_until_complete(self.fake.close())
        self.loop.close()


TestPodMachine = PodMachine.TestCase
TestPodMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
