"""The largest number in every field makes no plan longer than a burst, nor any work that depends on the number."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from control.controllers import disruption, node_ipam, pods, replicaset, ttl_after_finished
from control.controllers.autoscaling import behavior, replicas
from control.controllers.cronjob import plan as cronjob
from control.controllers.daemonset import plan as daemonset
from control.controllers.deployment import rolling, status
from control.controllers.endpoints import endpoints, slice_plan
from control.controllers.job import plan as job
from control.controllers.job import tally
from control.controllers.job.backoff import Backoff
from control.controllers.nodes import taint_eviction
from control.controllers.statefulset import plan as statefulset
from kube.api import apps_v1, autoscaling_v2, batch_v1, core_v1, meta_v1, policy_v1
from tests.support.largest import MAX_INT32, Endless, bounded, judged, largest

from .makers import NOW, ago, pod

BURST = 500
EVERY_INDEX = f"0-{MAX_INT32 - 1}"


def made(kind: Any) -> Any:
    found = largest(kind)
    found.metadata = meta_v1.ObjectMeta(
        name="it", namespace="default", uid="uid-it", generation=2**63 - 1, creation_timestamp=ago(3600)
    )
    if "conditions" in found.status.__struct_fields__:
        found.status.conditions = []
    return found


def members(name: str = "it", count: int = 3) -> list[core_v1.Pod]:
    found = [pod(f"{name}-{n}", ready=bool(n % 2), phase="Running", restarts=MAX_INT32) for n in range(count)]
    for index, each in enumerate(found):
        each.metadata.annotations = {tally.INDEX: str(index), tally.FAILURES: str(MAX_INT32)}
        each.metadata.finalizers = [tally.FINALIZER]
    return found


# -- what makes pods -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("policy", "strategy", "size", "start"),
    list(product(("OrderedReady", "Parallel"), ("RollingUpdate", "OnDelete"), (0, MAX_INT32), (0, MAX_INT32))),
)
def test_stateful_sets(policy: str, strategy: str, size: int, start: int) -> None:
    sts = made(apps_v1.StatefulSet)
    sts.spec.pod_management_policy, sts.spec.update_strategy.type = policy, strategy
    sts.spec.replicas, sts.spec.ordinals.start = size, start
    for present, old in product(([], members()), ("r1", "r2")):
        todo = judged(statefulset.plan, sts, present, old, "r2", NOW)
        assert len(todo.create) + len(todo.delete) <= BURST
    assert size == 0 or policy == "OrderedReady" or len(todo.create) == BURST


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
@pytest.mark.parametrize("indexes", [None, "0", f"2-{MAX_INT32 - 9}", EVERY_INDEX, "0-" + "9" * 300])
def test_jobs(mode: str, indexes: str | None) -> None:
    desired = made(batch_v1.Job)
    desired.spec.completion_mode, desired.spec.pod_failure_policy = mode, None
    desired.spec.success_policy.rules[0].succeeded_indexes = indexes
    desired.status.start_time = ago(60)
    desired.status.uncounted_terminated_pods = None
    for done, failed, ended, count in product((None, indexes), (None, indexes), (True, False), (0, MAX_INT32)):
        desired.status.completed_indexes, desired.status.failed_indexes = done, failed
        desired.status.succeeded = desired.status.failed = count
        present = members()
        present[0].status.phase = "Failed" if ended else "Running"
        todo = judged(job.plan, desired, present, settled=True, backoff=Backoff(MAX_INT32, NOW), now=NOW)
        assert len(todo.create) + len(todo.delete) <= BURST


def test_jobs_that_have_not_begun() -> None:
    desired = made(batch_v1.Job)
    desired.spec.completion_mode, desired.spec.pod_failure_policy, desired.spec.success_policy = "Indexed", None, None
    desired.status = batch_v1.JobStatus()
    assert len(judged(job.plan, desired, [], settled=True, backoff=Backoff(), now=NOW).create) == BURST


@pytest.mark.parametrize("schedule", ["* * * * *", "0 0 29 2 *", "@every 2562047h", "@every 1s"])
def test_cron_jobs(schedule: str) -> None:
    cron = made(batch_v1.CronJob)
    cron.spec.schedule, cron.status.active, cron.status.last_schedule_time = schedule, [], ago(9 * 365 * 86400)
    for deadline in (None, 0, 2**63 - 1):
        cron.spec.starting_deadline_seconds = deadline
        judged(cronjob.plan, cron, [], NOW)


def test_replica_sets() -> None:
    for wanted in (0, MAX_INT32):
        todo = judged(replicaset.plan, wanted, members(), members(), NOW)
        assert todo.create + len(todo.delete) <= BURST
    found = made(apps_v1.ReplicaSet)
    judged(replicaset.status_of, found, members(), MAX_INT32, MAX_INT32, None, NOW)


@pytest.mark.parametrize("share", [MAX_INT32, f"{MAX_INT32}%", "100%", 0])
def test_deployments(share: int | str) -> None:
    desired = made(apps_v1.Deployment)
    desired.spec.strategy.type = "RollingUpdate"
    desired.spec.strategy.rolling_update.max_surge = desired.spec.strategy.rolling_update.max_unavailable = share
    sets = [made(apps_v1.ReplicaSet) for _ in range(3)]
    for number, each in enumerate(sets):
        each.metadata.name = f"it-{number}"
        each.metadata.annotations = {"deployment.kubernetes.io/max-replicas": "9" * 4000}
    new, old = sets[0], sets[1:]
    judged(rolling.new_size, desired, old, MAX_INT32)
    judged(rolling.grow_new, desired, new, sets)
    judged(rolling.shrink_old, desired, new, old)
    judged(rolling.scale, desired, new, old)
    judged(status.count, desired, sets, new, NOW)


@pytest.mark.parametrize("share", [MAX_INT32, f"{MAX_INT32}%", 0])
def test_daemon_sets(share: int | str) -> None:
    desired = made(apps_v1.DaemonSet)
    desired.spec.template.spec.affinity = None
    desired.spec.update_strategy.rolling_update.max_surge = (
        desired.spec.update_strategy.rolling_update.max_unavailable
    ) = share
    nodes = {f"n{n}": (True, True) for n in range(3)}
    todo = judged(daemonset.plan, desired, members(), nodes, "r2", settled=True, now=NOW)
    assert len(todo.create) <= len(nodes) and len(todo.delete) <= 3


# -- what counts ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [MAX_INT32, f"{MAX_INT32}%"])
def test_disruption_budgets(share: int | str) -> None:
    budget = made(policy_v1.PodDisruptionBudget)
    for budget.spec.max_unavailable, budget.spec.min_available in ((share, None), (None, share)):
        found = judged(disruption.status_of, budget, members(), lambda each: ("uid", MAX_INT32), NOW)
        assert 0 <= (found.disruptions_allowed or 0) <= found.current_healthy == 1


@pytest.mark.parametrize("kind", ["Pods", "Percent"])
@pytest.mark.parametrize("choice", ["Min", "Max", "Disabled"])
def test_autoscalers(kind: str, choice: str) -> None:
    found = made(autoscaling_v2.HorizontalPodAutoscaler).spec.behavior
    for rules in (found.scale_up, found.scale_down):
        rules.select_policy, rules.policies[0].type = choice, kind
    history = behavior.History([(0.0, MAX_INT32)], [(0.0, MAX_INT32)], [(0.0, MAX_INT32)])
    for given, current, desired in product((None, found), (0, 1, MAX_INT32), (0, 1, MAX_INT32)):
        judged(behavior.stabilized, history, given, current, desired, 1e9)
        judged(behavior.limited, history, given, current, desired, 1, MAX_INT32, 1e9)


def test_figures_of_autoscalers() -> None:
    metrics = {f"it-{n}": replicas.PodMetric(2**63 - 1, NOW) for n in range(2)}
    given = (members(), metrics, "memory", replicas.Tolerances(), replicas.Startup(), NOW)
    for target in (1, 2**63 - 1):
        judged(replicas.by_value, MAX_INT32, target, *given)
        judged(replicas.by_total, MAX_INT32, 2**63 - 1, target, members(), replicas.Tolerances())
        judged(replicas.by_share, MAX_INT32, 2**63 - 1, target, replicas.Tolerances())


def test_services() -> None:
    service = made(core_v1.Service)
    service.spec.selector, service.spec.ip_families = {"app": "web"}, ["IPv4"]
    service.spec.ports[0].target_port = MAX_INT32
    present = [pod(f"p{n}", ip=f"10.0.0.{n}") for n in range(3)]
    assert len(judged(slice_plan.plan, service, present, {}, []).create) == 1
    assert len(judged(endpoints.subsets_of, service, present)) == 1


def test_seconds_of_pods_and_jobs() -> None:
    """Times that cannot be added up are as far away as can be."""
    ready = pod("p")
    for since in (ago(1), "9999-12-31T23:59:59Z"):
        ready.status.conditions[0].last_transition_time = since
        assert not judged(pods.is_available, ready, MAX_INT32, NOW)
        ended = made(batch_v1.Job)
        ended.status.conditions = [batch_v1.JobCondition(type="Complete", status="True", last_transition_time=since)]
        assert (judged(ttl_after_finished.expires_in, ended, NOW) or 0) > 1e9
    taint = core_v1.Taint(key="a", effect="NoExecute")
    for seconds in (2**63 - 1, 10**400):  # stored by an older version
        toleration = core_v1.Toleration(operator="Exists", toleration_seconds=seconds)
        assert (judged(taint_eviction.min_toleration_time, [taint], [toleration]) or 0) > 1e9


def test_ranges_of_nodes() -> None:
    """A node that says it has all addresses does not have each block of them recorded."""
    ranges = node_ipam.Ranges("fd00::/8", 64)
    judged(ranges.mark, "fd80::/9", "greedy")
    assert judged(ranges.take, "n1") == "fd00::/64"
    with bounded(lines=1_000_000):
        ranges.mark("::/0", "all")
        with pytest.raises(node_ipam.RangeFull):
            ranges.take("n2")
        ranges.give_back("::/0", "all")


# -- the judge itself ----------------------------------------------------------------------------------------------
def test_what_depends_on_the_number_is_seen() -> None:
    with pytest.raises(Endless):
        judged(sum, (1 for _ in range(MAX_INT32)))
    with pytest.raises(MemoryError):
        judged(set, range(MAX_INT32))
