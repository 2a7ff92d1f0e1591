"""Metrics of the control plane have the names, labels and buckets of upstream's stable and beta ones."""

from __future__ import annotations

import control.admission.metrics
import control.auth.metrics
import control.controllers.job.metrics
import control.controllers.manager
import control.controllers.nodes.metrics
import control.controllers.statefulset.metrics
import control.fairness.fairness
import control.scheduler.main  # noqa: F401  # these modules define the metrics
import kube.leases  # noqa: F401
from control.components.secure_port import MANAGER, SCHEDULER, belongs
from control.server.metrics import RequestMetrics
from kube import counters
from tests.support import messages
from tests.support.stable_metrics import BUCKETS, BY_REQUEST, COUNTED, LEFT_OUT, WRITTEN

OWN = {
    f"{metric.name}{metric.suffix}" if isinstance(metric, counters.Counter) else metric.name: metric
    for metric in counters.defined()
}


def test_counted_metrics_have_upstreams_labels() -> None:
    assert {name: set(OWN[name].labels) for name in COUNTED if name in OWN} == {
        name: set(labels.split()) for name, labels in COUNTED.items()
    }


def test_histograms_have_upstreams_buckets() -> None:
    found = {}
    for name in BUCKETS:
        metric = OWN[name]
        assert isinstance(metric, counters.Histogram)
        found[name] = (metric.buckets[0], metric.buckets[-1], len(metric.buckets))
    assert found == BUCKETS


def test_metrics_of_requests_have_upstreams_labels() -> None:
    families = {
        f"{family.name}_total" if family.type == "counter" else family.name: set(family._labelnames)
        for family in RequestMetrics().collect()
    }
    assert {name: families.get(name) for name in BY_REQUEST} == {
        name: set(labels.split()) for name, labels in BY_REQUEST.items()
    }


def test_other_metrics_are_written_somewhere() -> None:
    texts = messages.templates()

    def known(name: str) -> bool:
        short = name.removesuffix("_total")
        after_prefix = short.removeprefix("apiserver_flowcontrol_")
        return bool({name, short, after_prefix, f"{messages.VALUE}_{after_prefix}"} & texts)

    assert [name for name in WRITTEN if not known(name)] == []


def test_what_is_left_out_has_a_reason_and_is_not_there() -> None:
    served = {*COUNTED, *BY_REQUEST, *WRITTEN}
    assert not served & LEFT_OUT.keys() and all(LEFT_OUT.values())
    assert not LEFT_OUT.keys() & OWN.keys()


def test_each_component_shows_its_own_metrics() -> None:
    names = [metric.name for metric in counters.defined()]
    scheduler, manager = ({name for name in names if belongs(component, name)} for component in (SCHEDULER, MANAGER))
    assert {name for name in names if name.startswith("scheduler_")} <= scheduler - manager
    assert "workqueue_depth" in manager - scheduler and "job_controller_jobs_finished" in manager
    assert "leader_election_master_status" in scheduler & manager
    assert not {name for name in scheduler | manager if name.startswith(("apiserver_", "etcd_"))}
