"""Metrics of controllers: the ends of Jobs, their pods, zones of nodes, StatefulSets, and failed reconciliations."""

from __future__ import annotations

import pytest

from control.controllers import metrics
from control.controllers.job import metrics as job_metrics
from control.controllers.job.tally import FINALIZER
from control.controllers.nodes import metrics as node_metrics
from control.controllers.nodes.zones import ZoneStates
from control.controllers.statefulset import metrics as set_metrics
from control.controllers.statefulset.plan import max_unavailable
from kube import counters
from kube.api import apps_v1, batch_v1, core_v1, meta_v1
from kube.errors import StatusError
from kube.informer import Change
from tests.support.clock import FakeClock


def condition(kind: str, reason: str) -> batch_v1.JobCondition:
    return batch_v1.JobCondition(type=kind, status="True", reason=reason)


def job(mode: str | None = None, **status: object) -> batch_v1.Job:
    return batch_v1.Job(
        metadata=meta_v1.ObjectMeta(name="j"),
        spec=batch_v1.JobSpec(completion_mode=mode),
        status=batch_v1.JobStatus(**status),  # type: ignore[arg-type]
    )


def value(metric: counters.Counter | counters.Gauge, *labels: str) -> float:
    return metric.values.get(labels, 0)


def test_the_end_of_a_job_is_counted_once() -> None:
    ended = job(conditions=[condition("Failed", "BackoffLimitExceeded")])
    labels = ("NonIndexed", "failed", "BackoffLimitExceeded")
    before = value(job_metrics.JOBS_FINISHED, *labels)
    job_metrics.job_written(job(), ended.status)
    job_metrics.job_written(ended, ended.status)
    assert value(job_metrics.JOBS_FINISHED, *labels) == before + 1


def test_pods_are_counted_as_the_status_counts_them() -> None:
    before = value(job_metrics.JOB_PODS_FINISHED, "Indexed", "succeeded")
    job_metrics.job_written(job("Indexed", succeeded=2), batch_v1.JobStatus(succeeded=5, failed=0))
    assert value(job_metrics.JOB_PODS_FINISHED, "Indexed", "succeeded") == before + 3
    assert ("Indexed", "failed") not in job_metrics.JOB_PODS_FINISHED.values


def test_a_failed_reconciliation_of_a_job_is_an_error() -> None:
    before = value(job_metrics.JOB_SYNCS, "NonIndexed", "error", "pods_created")
    with pytest.raises(StatusError), job_metrics.job_sync(job(), FakeClock()) as sync:
        sync.action = "pods_created"
        raise StatusError(500, "InternalError", "no")
    assert value(job_metrics.JOB_SYNCS, "NonIndexed", "error", "pods_created") == before + 1


def pod(phase: str, *finalizers: str) -> core_v1.Pod:
    return core_v1.Pod(metadata=meta_v1.ObjectMeta(finalizers=list(finalizers)), status=core_v1.PodStatus(phase=phase))


@pytest.mark.parametrize(
    ("change", "event"),
    [
        (Change("MODIFIED", pod("Running", FINALIZER), pod("Succeeded", FINALIZER)), "add"),
        (Change("MODIFIED", pod("Succeeded", FINALIZER), pod("Succeeded")), "delete"),
        (Change("ADDED", None, pod("Failed", FINALIZER)), "add"),
        (Change("DELETED", pod("Failed", FINALIZER), pod("Failed", FINALIZER)), "delete"),
        (Change("MODIFIED", pod("Failed", FINALIZER), pod("Failed", FINALIZER)), ""),
        (Change("MODIFIED", pod("Pending", FINALIZER), pod("Running", FINALIZER)), ""),
    ],
)
def test_terminated_pods_with_the_finalizer_are_counted(change: Change[core_v1.Pod], event: str) -> None:
    before = dict(job_metrics.TRACKED_PODS.values)
    job_metrics.pod_changed(change)
    after = {key for key, count in job_metrics.TRACKED_PODS.values.items() if count != before.get(key, 0)}
    assert after == ({(event,)} if event else set())


def test_zones_are_shown_while_their_controller_works() -> None:
    states = ZoneStates()
    with node_metrics.zones_shown(states):
        for name, zone, ready in (("a", "r:z", True), ("b", "r:z", False), ("c", "r:z", True), ("d", "r:y", False)):
            states.set_node(name, zone, ready=ready)
        list(counters.families())
        assert value(node_metrics.ZONE_SIZE, "r:z") == 3 and value(node_metrics.UNHEALTHY, "r:z") == 1
        assert value(node_metrics.ZONE_HEALTH, "r:z") == pytest.approx(66.67, abs=0.01)
        assert value(node_metrics.ZONE_HEALTH, "r:y") == 0
    list(counters.families())
    assert ("r:z",) not in node_metrics.ZONE_SIZE.values


def test_a_statefulset_is_shown_until_it_is_deleted() -> None:
    rolling = apps_v1.RollingUpdateStatefulSetStrategy(max_unavailable="40%")
    found = apps_v1.StatefulSet(
        metadata=meta_v1.ObjectMeta(name="s", namespace="n"),
        spec=apps_v1.StatefulSetSpec(
            replicas=4, update_strategy=apps_v1.StatefulSetUpdateStrategy(rolling_update=rolling)
        ),
    )
    labels = ("n", "s", "OrderedReady")
    set_metrics.reconciled(found, apps_v1.StatefulSetStatus(available_replicas=1), max_unavailable(found))
    assert (value(set_metrics.MAX_UNAVAILABLE, *labels), value(set_metrics.UNAVAILABLE, *labels)) == (2, 3)
    set_metrics.deleted(found)
    assert labels not in set_metrics.MAX_UNAVAILABLE.values and labels not in set_metrics.UNAVAILABLE.values


@pytest.mark.parametrize(
    ("error", "code"), [(None, "200"), (StatusError(409, "Conflict", "x"), "409"), (OSError(), "500")]
)
def test_a_reconciliation_of_the_cas_config_map_has_a_code(error: Exception | None, code: str) -> None:
    before = value(metrics.CA_SYNCS, code)
    try:
        with metrics.ca_sync(FakeClock()):
            if error is not None:
                raise error
    except (StatusError, OSError):
        pass
    assert value(metrics.CA_SYNCS, code) == before + 1


def test_a_counter_may_have_no_suffix() -> None:
    metrics.SLICE_CHANGES.add("create")
    (sample, *_) = metrics.SLICE_CHANGES.family().samples
    assert sample.name == "endpoint_slice_controller_changes"
