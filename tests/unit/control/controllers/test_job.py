"""Jobs: counting pods exactly once, verdicts, policies, indexes and back-off."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import islice

import msgspec
import pytest

from control.controllers.job import indexes, tally
from control.controllers.job.backoff import Backoff
from control.controllers.job.controller import pod_of
from control.controllers.job.plan import BURST, JobPlan, has, plan
from control.controllers.job.policies import judge, succeeded_early
from kube.api import batch_v1, core_v1, meta_v1

from .makers import NOW, ago, pod, template


def job(**spec) -> batch_v1.Job:
    return batch_v1.Job(
        metadata=meta_v1.ObjectMeta(name="j", namespace="default", uid="uid-j"),
        spec=batch_v1.JobSpec(template=template(), **{"parallelism": 1, "completions": 1, "backoff_limit": 6, **spec}),
    )


def worker(name: str, phase: str = "Running", index: int = -1, code: int = 0, **more) -> core_v1.Pod:
    found = pod(name, phase=phase, ready=phase == "Running", **more)
    found.metadata.finalizers = [tally.FINALIZER]
    if index >= 0:
        found.metadata.annotations[tally.INDEX] = str(index)
    if code:
        ended = core_v1.ContainerStateTerminated(exit_code=code)
        found.status.container_statuses = [
            core_v1.ContainerStatus(name="c", state=core_v1.ContainerState(terminated=ended))
        ]
    return found


def look(desired: batch_v1.Job, pods, backoff: Backoff | None = None, seconds: float = 0) -> JobPlan:
    return plan(desired, pods, settled=True, backoff=backoff or Backoff(), now=NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("text", "found", "written"),
    [
        ("", set(), ""),
        ("1", {1}, "1"),
        ("0-2,5", {0, 1, 2, 5}, "0-2,5"),
        ("0,1", {0, 1}, "0,1"),
        ("7-20,x", {7, 8, 9}, "7-9"),
    ],
)
def test_index_sets_are_read_and_written(text, found, written) -> None:
    assert indexes.parse(text, 10) == indexes.of(found) and indexes.render(indexes.of(found)) == written


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        ({"parallelism": 3, "completions": 5}, [], 3),
        ({"parallelism": 3, "completions": 5}, [worker("a")], 2),
        ({"parallelism": 3, "completions": 2}, [], 2),
        ({"parallelism": 2, "completions": None}, [], 2),
        ({"parallelism": 0}, [], 0),
        ({"suspend": True}, [], 0),
    ],
)
def test_as_many_pods_run_as_parallelism_and_completions_allow(spec, pods, expected) -> None:
    assert len(look(job(**spec), pods).create) == expected


def test_index_sets_are_joined_compared_and_taken_apart_without_being_spelled_out() -> None:
    most = 2**31 - 1
    everything = indexes.parse(f"0-{most}", most)
    assert everything == indexes.Indexes(((0, most - 1),)) and len(everything) == most
    assert list(indexes.parse(f"0-4,6-{most}", most).missing(most)) == [5]
    assert list(islice(indexes.of([1, 2]).missing(most), 3)) == [0, 3, 4]
    assert most - 1 in everything and most not in everything and 5 not in indexes.of([4, 6])
    assert indexes.render(everything - indexes.of([0, 7])) == f"1-6,8-{most - 1}"
    assert indexes.render(indexes.parse("3-9,1,2,20", 30) & indexes.parse("2-4,8-40", 30)) == "2-4,8,9,20"
    assert indexes.render(indexes.of([3, 1]) | indexes.of([2, 9])) == "1-3,9"


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_job_with_the_maximum_parallelism_creates_at_most_one_plan_of_pods(mode: str) -> None:
    desired = job(parallelism=2**31 - 1, completions=2**31 - 1, completion_mode=mode)
    assert len(look(desired, [worker("a", index=1)]).create) == BURST


def test_the_indexes_of_a_success_policy_are_not_spelled_out() -> None:
    most = 2**31 - 1
    rules = [batch_v1.SuccessPolicyRule(succeeded_indexes=f"0-{most - 1}")]
    done = indexes.parse(f"0-{most - 1}", most)
    assert succeeded_early(batch_v1.SuccessPolicy(rules=rules), done, most) == "Matched rules at index 0"
    assert succeeded_early(batch_v1.SuccessPolicy(rules=rules), done - indexes.of([9]), most) == ""


def test_surplus_pods_are_deleted() -> None:
    assert len(look(job(parallelism=1, completions=5), [worker("a"), worker("b"), worker("c")]).delete) == 2


def advance(desired: batch_v1.Job, pods, todo: JobPlan):
    """Carry a plan out: the status, then the finalizers."""
    for gone in todo.untrack:
        gone.metadata.finalizers = []
    return msgspec.structs.replace(desired, status=todo.status), pods


def test_a_finished_pod_is_noted_then_let_go_then_counted_and_then_the_job_is_complete() -> None:
    desired, pods = job(), [worker("a", "Succeeded")]
    first = look(desired, pods)
    assert first.status.uncounted_terminated_pods.succeeded == ["uid-a"] and not first.status.succeeded
    assert first.untrack == pods and has(msgspec.structs.replace(desired, status=first.status), "SuccessCriteriaMet")
    assert first.create == [] and first.status.completion_time is None
    desired, pods = advance(desired, pods, first)
    second = look(desired, pods)
    assert second.status.succeeded == 1 and second.status.uncounted_terminated_pods.succeeded == []
    done = {c.type: (c.status, c.reason, c.message) for c in second.status.conditions}
    assert done["Complete"] == ("True", "CompletionsReached", "Reached expected number of succeeded pods")
    assert second.status.completion_time == ago(0) and second.events == [("Normal", "Completed", "Job completed")]
    desired, pods = advance(desired, pods, second)
    assert look(desired, pods).status == desired.status


def test_a_pod_that_vanishes_after_it_was_noted_is_counted() -> None:
    desired = job(completions=3)
    todo = look(desired, [worker("a", "Succeeded")])
    desired, _ = advance(desired, [], todo)
    assert look(desired, []).status.succeeded == 1


@pytest.mark.parametrize("seed", range(10))
def test_each_pod_is_counted_once_whatever_is_lost_between_the_steps(seed: int) -> None:
    """The controller stops at any point of its writes; pods finish and vanish meanwhile."""
    chance = random.Random(seed)
    desired, pods = job(parallelism=20, completions=100, backoff_limit=1000), [worker(f"p{i}") for i in range(20)]
    ends = {p.metadata.uid: "" for p in pods}
    for _ in range(200):
        for found in pods:
            if found.status.phase == "Running" and chance.random() < 0.1:
                found.status.phase = ends[found.metadata.uid] = chance.choice(["Succeeded", "Failed"])
        todo = look(desired, pods)
        if chance.random() < 0.3:
            continue  # died before the status was written
        desired = msgspec.structs.replace(desired, status=todo.status)
        for gone in todo.untrack:
            if chance.random() < 0.7:
                gone.metadata.finalizers = []
        pods = [p for p in pods if p.metadata.finalizers or p.status.phase == "Running" or chance.random() < 0.8]
    for _ in range(3):
        desired, pods = advance(desired, pods, look(desired, pods))
    assert desired.status.succeeded == list(ends.values()).count("Succeeded")
    assert desired.status.failed == list(ends.values()).count("Failed")


def test_more_failures_than_the_limit_end_the_job_when_all_pods_are_gone() -> None:
    desired, pods = job(backoff_limit=0, parallelism=2, completions=2), [worker("a", "Failed"), worker("b")]
    first = look(desired, pods)
    target = next(c for c in first.status.conditions if c.type == "FailureTarget")
    assert (target.reason, target.message) == ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert [p.metadata.name for p in first.delete] == ["b"] and not has(
        msgspec.structs.replace(desired, status=first.status), "Failed"
    )
    desired, _ = advance(desired, pods, first)
    last = look(desired, [pods[0]])
    assert last.events == [("Warning", "BackoffLimitExceeded", "Job has reached the specified backoff limit")]
    assert last.status.failed == 2 and last.status.conditions[-1].type == "Failed"


def test_more_successes_than_completions_emit_an_event() -> None:
    desired, pods = job(completions=1), [worker("a", "Succeeded"), worker("b", "Succeeded")]
    desired, pods = advance(desired, pods, look(desired, pods))
    last = look(desired, pods)
    text = "Too many succeeded pods running after completion count reached"
    assert last.events == [("Warning", "TooManySucceededPods", text), ("Normal", "Completed", "Job completed")]
    assert last.status.succeeded == 2


def test_restarts_count_as_failures_where_containers_are_restarted() -> None:
    desired = job(backoff_limit=2)
    desired.spec.template.spec.restart_policy = "OnFailure"
    assert look(desired, [worker("a", restarts=1)]).delete == []
    assert len(look(desired, [worker("a", restarts=2)]).delete) == 1


def test_the_deadline_ends_a_job_and_is_waited_for() -> None:
    desired = job(active_deadline_seconds=60)
    desired.status.start_time = ago(10)
    assert look(desired, [worker("a")]).again == 50
    late = look(desired, [worker("a")], seconds=51)
    assert late.status.conditions[0].reason == "DeadlineExceeded" and len(late.delete) == 1


def test_failed_pods_are_replaced_after_a_doubling_wait() -> None:
    backoff = Backoff(3, NOW)
    assert look(job(), [], backoff).create == [] and look(job(), [], backoff).again == 40
    assert look(job(), [], backoff, seconds=41).create == [-1]
    assert Backoff(30, NOW).wait(NOW) == 600


def test_suspending_deletes_pods_and_resuming_starts_the_clock_anew() -> None:
    desired = job(suspend=True)
    desired.status.start_time = ago(1000)
    stopped = look(desired, [worker("a")])
    assert len(stopped.delete) == 1 and stopped.events == [("Normal", "Suspended", "Job suspended")]
    assert stopped.status.start_time is None
    desired = msgspec.structs.replace(
        desired, status=stopped.status, spec=msgspec.structs.replace(desired.spec, suspend=False)
    )
    resumed = look(desired, [])
    assert resumed.events == [("Normal", "Resumed", "Job resumed")] and resumed.status.start_time == ago(0)
    assert resumed.create == [-1]


def test_an_indexed_job_fills_its_gaps() -> None:
    desired = job(completion_mode="Indexed", completions=5, parallelism=5)
    desired.status.completed_indexes = "0,3"
    todo = look(desired, [worker("a", index=1)])
    assert todo.create == [2, 4] and todo.status.succeeded == 2
    done = look(desired, [worker("a", "Succeeded", index=1), worker("b", "Succeeded", index=1)])
    assert done.status.completed_indexes == "0,1,3" and done.status.uncounted_terminated_pods.succeeded == []


@pytest.mark.parametrize(
    ("pods", "deleted"),
    [
        ([worker("a", index=0), worker("b", index=0, age=60)], ["b"]),
        ([worker("a", index=0, age=90), worker("b", index=0, age=90), worker("c", index=1, age=10)], ["a"]),
        ([worker("a", index=0, age=10), worker("b", index=7)], ["b"]),
        ([worker("a", index=0, age=10), worker("b")], ["b"]),
        ([worker("a", "Succeeded", index=0), worker("b", index=0)], ["b"]),
    ],
)
def test_pods_of_an_indexed_job_that_serve_no_index_go_before_any_other(pods, deleted) -> None:
    todo = look(job(completion_mode="Indexed", completions=2, parallelism=2), pods)
    assert [found.metadata.name for found in todo.delete] == deleted and todo.create == []


def test_a_pod_that_was_let_go_of_to_be_deleted_has_not_failed() -> None:
    going = worker("a", deleting=True)
    going.metadata.finalizers = []
    todo = look(job(backoff_limit=0), [going])
    assert todo.create == [-1] and todo.status.uncounted_terminated_pods == batch_v1.UncountedTerminatedPods()
    going = worker("a", index=0, deleting=True)
    going.metadata.finalizers = []
    assert 0 in look(each_index(), [going]).create and tally.latest_failures(each_index(), [going]) == {}


@pytest.mark.parametrize("text", ["", "x", "-1", "²", "9" * 5000])
def test_a_pod_whose_annotations_are_no_numbers_has_no_index_and_no_failures(text: str) -> None:
    odd = worker("a", "Failed")
    odd.metadata.annotations = {tally.INDEX: text, tally.FAILURES: text}
    assert tally.index_of(odd) == -1 and tally.failures_before(odd) == 0


def test_indexed_pods_know_their_index() -> None:
    made = pod_of(job(completion_mode="Indexed", backoff_limit_per_index=1), 3, worker("x", "Failed", index=3))
    assert made.metadata.generate_name == "j-3-" and made.spec.hostname == "j-3"
    assert made.metadata.labels[tally.INDEX] == made.metadata.annotations[tally.INDEX] == "3"
    assert made.metadata.annotations[tally.FAILURES] == "1" and made.metadata.finalizers == [tally.FINALIZER]
    assert made.spec.containers[0].env[0].name == "JOB_COMPLETION_INDEX"
    assert template().spec.containers[0].env == []


def test_an_index_that_fails_too_often_is_given_up_and_fails_the_job_at_the_end() -> None:
    desired = job(
        completion_mode="Indexed", completions=2, parallelism=2, backoff_limit_per_index=0, backoff_limit=2**31 - 1
    )
    first = look(desired, [worker("a", "Failed", index=0), worker("b", index=1)])
    assert first.status.failed_indexes == "0" and first.create == []
    desired, _ = advance(desired, [], first)
    second = look(desired, [worker("b", "Succeeded", index=1)])
    assert second.status.conditions[0].reason == "FailedIndexes"


def ended(name: str, index: int, seconds_ago: float, failures: int = 0, code: int = 1) -> core_v1.Pod:
    """A failed pod of an index that had failed so often before."""
    found = worker(name, "Failed", index=index, code=code)
    found.metadata.annotations[tally.FAILURES] = str(failures)
    state = found.status.container_statuses[0].state
    assert state is not None and state.terminated is not None
    state.terminated.finished_at = ago(seconds_ago)
    return found


def each_index(**more) -> batch_v1.Job:
    limits = {"backoff_limit_per_index": 3, "backoff_limit": 2**31 - 1}
    return job(completion_mode="Indexed", completions=3, parallelism=3, **limits, **more)


def test_each_index_waits_by_its_own_failures() -> None:
    todo = look(each_index(), [ended("a", 0, 3), ended("b", 1, 15), ended("c", 2, 15, failures=1)])
    assert todo.create == [1] and todo.again == 5


def test_the_last_failed_pod_of_an_index_is_held_until_its_successor_carries_the_count() -> None:
    first = ended("a", 0, 60)
    others = [worker("b", index=1), worker("c", index=2)]
    todo = look(each_index(), [first, *others])
    assert todo.create == [0] and todo.untrack == [] and todo.status.uncounted_terminated_pods.failed == []
    successor = pod_of(each_index(), 0, first)
    assert successor.metadata.annotations[tally.FAILURES] == "1"
    successor.metadata.uid = "uid-next"
    successor.status.phase = "Running"
    later = look(each_index(), [first, successor, *others])
    assert later.untrack == [first] and later.status.uncounted_terminated_pods.failed == ["uid-a"]


def test_held_pods_are_counted_when_the_job_ends() -> None:
    desired = each_index(active_deadline_seconds=10)
    desired.status.start_time = ago(20)
    todo = look(desired, [ended("a", 0, 2)])
    assert todo.status.conditions[0].reason == "DeadlineExceeded" and len(todo.untrack) == 1


def test_an_ignored_failure_of_an_index_is_carried_apart() -> None:
    policy = batch_v1.PodFailurePolicy(rules=[exit_rule("Ignore", 42)])
    desired = each_index(pod_failure_policy=policy)
    first = ended("a", 0, 60, failures=1, code=42)
    assert 0 in look(desired, [first]).create
    made = pod_of(desired, 0, first).metadata.annotations
    assert (made[tally.FAILURES], made[tally.IGNORED]) == ("1", "1")


def exit_rule(action: str, *codes: int, operator: str = "In") -> batch_v1.PodFailurePolicyRule:
    requirement = batch_v1.PodFailurePolicyOnExitCodesRequirement(operator=operator, values=list(codes))
    return batch_v1.PodFailurePolicyRule(action=action, on_exit_codes=requirement)


def test_the_failure_policy_judges_by_exit_codes_and_conditions_in_order() -> None:
    disrupted = batch_v1.PodFailurePolicyRule(
        action="Ignore", on_pod_conditions=[batch_v1.PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget")]
    )
    policy = batch_v1.PodFailurePolicy(rules=[exit_rule("FailJob", 42), disrupted])
    assert judge(policy, worker("a", "Failed", code=42)) == (
        "FailJob",
        "Container c for pod default/a failed with exit code 42 matching FailJob rule at index 0",
    )
    assert judge(policy, worker("a", "Failed", code=1)) == ("Count", "")
    evicted = worker("a", "Failed", code=1)
    evicted.status.conditions.append(core_v1.PodCondition(type="DisruptionTarget", status="True"))
    assert judge(policy, evicted)[0] == "Ignore"
    assert (
        judge(
            batch_v1.PodFailurePolicy(rules=[exit_rule("Ignore", 0, 1, operator="NotIn")]),
            worker("a", "Failed", code=2),
        )[0]
        == "Ignore"
    )


def test_the_condition_of_a_job_that_a_pod_failure_policy_failed_names_the_rule() -> None:
    desired = job(pod_failure_policy=batch_v1.PodFailurePolicy(rules=[exit_rule("FailJob", 42)]))
    todo = look(desired, [worker("a", "Failed", code=42), worker("b", "Failed", code=1)])
    condition = todo.status.conditions[0]
    assert todo.tally.actions == ["FailJob"]
    assert (condition.type, condition.reason) == ("FailureTarget", "PodFailurePolicy")
    assert "exit code 42" in condition.message


def test_an_ignored_failure_is_not_counted_but_replaced() -> None:
    desired = job(backoff_limit=0, pod_failure_policy=batch_v1.PodFailurePolicy(rules=[exit_rule("Ignore", 42)]))
    todo = look(desired, [worker("a", "Failed", code=42)])
    assert todo.status.uncounted_terminated_pods.failed == [] and todo.create == [-1] and len(todo.untrack) == 1
    assert todo.tally.actions == ["Ignore"]


def test_a_success_policy_ends_the_job_before_all_indexes_are_done() -> None:
    policy = batch_v1.SuccessPolicy(rules=[batch_v1.SuccessPolicyRule(succeeded_indexes="0-2", succeeded_count=2)])
    assert succeeded_early(policy, indexes.of({0, 4}), 5) == ""
    assert succeeded_early(policy, indexes.of({0, 2}), 5) == "Matched rules at index 0"
    desired = job(completion_mode="Indexed", completions=5, parallelism=5, success_policy=policy)
    desired.status.completed_indexes = "0,2"
    todo = look(desired, [worker("x", index=1)])
    assert todo.status.conditions[0].reason == "SuccessPolicy" and len(todo.delete) == 1


def test_a_deleted_pod_counts_as_failed_unless_only_failed_ones_are_replaced() -> None:
    leaving = worker("a", deleting=True)
    assert look(job(), [leaving]).create == [-1]
    careful = look(job(pod_replacement_policy="Failed"), [leaving])
    assert careful.create == [] and careful.status.terminating == 1


@pytest.mark.parametrize("policy", [None, "Failed"])
def test_a_job_that_has_failed_lets_go_of_all_its_pods_and_counts_them_as_failed(policy) -> None:
    desired = job(active_deadline_seconds=10, pod_replacement_policy=policy)
    running, going = worker("a"), worker("b", deleting=True)
    todo = look(desired, [running, going], seconds=0)
    desired.status = todo.status
    todo = look(desired, [running, going], seconds=60)
    assert [c.type for c in todo.status.conditions] == ["FailureTarget"]
    assert {pod.metadata.name for pod in todo.untrack} == {"a", "b"}
    noted = todo.status.uncounted_terminated_pods
    assert noted is not None and len(noted.failed) == 2


def test_a_job_that_has_succeeded_lets_go_of_what_still_runs_and_counts_it_as_nothing() -> None:
    rules = batch_v1.SuccessPolicy(rules=[batch_v1.SuccessPolicyRule(succeeded_indexes="0")])
    desired = job(completions=2, parallelism=2, completion_mode="Indexed", success_policy=rules)
    todo = look(desired, [worker("a", "Succeeded", index=0), worker("b", index=1)])
    assert [c.type for c in todo.status.conditions] == ["SuccessCriteriaMet"]
    assert {pod.metadata.name for pod in todo.untrack} == {"a", "b"} and not todo.status.failed
    assert todo.status.uncounted_terminated_pods == batch_v1.UncountedTerminatedPods()


def test_failures_beyond_the_indexes_that_are_left_do_not_count() -> None:
    desired = job(completions=1, parallelism=1, completion_mode="Indexed")
    todo = look(desired, [worker("a", index=0), worker("b", "Failed", index=1)])
    assert [pod.metadata.name for pod in todo.untrack] == ["b"]
    assert todo.status.uncounted_terminated_pods == batch_v1.UncountedTerminatedPods()


def test_a_job_that_is_deleted_lets_go_of_its_pods() -> None:
    desired = job(pod_replacement_policy="Failed")
    desired.metadata.deletion_timestamp = ago(1)
    todo = look(desired, [worker("a", deleting=True)])
    assert [pod.metadata.name for pod in todo.untrack] == ["a"] and not todo.create
