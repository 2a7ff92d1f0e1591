"""Requests to the metrics APIs, and the use of their responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from control.controllers.autoscaling.calculate import Calculator, MetricFailed, Situation
from control.controllers.autoscaling.metrics_client import MetricsClient
from control.controllers.autoscaling.replicas import MetricsError, Tolerances
from control.controllers.autoscaling.settings import Startup
from control.controllers.autoscaling.target import Targets
from kube import serialize
from kube.api import autoscaling_v2 as v2
from kube.api import meta_v1
from kube.client import Client, Response
from kube.errors import StatusError
from tests.support.clock import FakeClock

from .makers import pod

CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io/v1beta1"
RESOURCE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"


class Adapter:
    """A transport that answers some paths and does not know the others."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers, self.received, self.limits = answers, [], []  # type: ignore[var-annotated]

    async def request(self, method: str, path: str, *, query: Any = None, **options: Any) -> Response:
        self.received.append((path, dict(query or {})))
        self.limits.append(options.get("most_bytes"))
        if path in self.answers:
            return Response(200, {}, json.dumps({"items": self.answers[path]}).encode())
        raise StatusError(404, "NotFound", "the server could not find the requested resource")

    def metrics(self) -> MetricsClient:
        return MetricsClient(Client(self), FakeClock())  # type: ignore[arg-type]


def value(name: str, amount: str, **more: Any) -> dict[str, Any]:
    return {"describedObject": {"name": name}, "timestamp": "2026-01-01T11:59:55Z", "value": amount, **more}


QUEUE = v2.MetricIdentifier(name="queue", selector=meta_v1.LabelSelector(match_labels={"q": "a"}))
PLAIN = v2.MetricIdentifier(name="hits")


async def test_pod_metrics_are_requested_with_both_selectors_in_the_served_version() -> None:
    path = f"{CUSTOM}/v1beta1/namespaces/default/pods/*/queue"
    adapter = Adapter({path: [value("a", "1500m"), value("b", "2", windowSeconds=30)]})
    found = await adapter.metrics().pods(QUEUE, "default", "app=web")
    assert {name: (metric.value, metric.window) for name, metric in found.items()} == {"a": (1500, 60), "b": (2000, 30)}
    assert [requested for requested, _ in adapter.received] == [
        f"{CUSTOM}/v1beta2/namespaces/default/pods/*/queue",
        path,
    ]
    assert adapter.received[1][1] == {"labelSelector": "app=web", "metricLabelSelector": "q=a"}


async def test_an_objects_metric_has_the_objects_path_and_a_namespace_a_path_of_its_own() -> None:
    one = f"{CUSTOM}/v1beta2/namespaces/default/ingresses.networking.k8s.io/main/hits"
    namespace = f"{CUSTOM}/v1beta2/namespaces/default/metrics/hits"
    metrics = Adapter({one: [value("main", "10")], namespace: [value("default", "7")]}).metrics()
    assert await metrics.object(PLAIN, "default", "ingresses.networking.k8s.io", "main") == 10_000
    assert await metrics.object(PLAIN, "default", "namespaces", "default") == 7_000
    # A reference does not lead out of the autoscaler's namespace, whatever Namespace it names.
    assert await metrics.object(PLAIN, "default", "namespaces", "other") == 7_000


async def test_external_values_are_added_up() -> None:
    adapter = Adapter({f"{EXTERNAL}/namespaces/default/queue": [{"value": "30"}, {"value": "500m"}]})
    assert await adapter.metrics().external(QUEUE, "default") == 30_500
    assert adapter.received[0][1] == {"labelSelector": "q=a"}


async def test_missing_metrics_are_reported_with_upstreams_messages() -> None:
    empty = Adapter({f"{EXTERNAL}/namespaces/default/hits": []}).metrics()
    with pytest.raises(MetricsError, match=r"^no metrics returned from external metrics API$"):
        await empty.external(PLAIN, "default")
    nobody = Adapter({}).metrics()
    why = (
        r"^unable to fetch metrics from custom metrics API: no custom metrics API \(custom.metrics.k8s.io\) registered$"
    )
    with pytest.raises(MetricsError, match=why):
        await nobody.pods(PLAIN, "default", "")
    with pytest.raises(MetricsError, match=r"^unable to fetch metrics from resource metrics API: the server could not"):
        await nobody.resource("cpu", "default", "")


async def test_usage_is_of_all_containers_or_of_one() -> None:
    containers = [{"name": "c", "usage": {"cpu": "100m"}}, {"name": "side", "usage": {"cpu": "5000000n"}}]
    item = {"metadata": {"name": "a", "namespace": "default"}, "window": "1m0.5s", "containers": containers}
    metrics = Adapter({RESOURCE: [item]}).metrics()
    found = await metrics.resource("cpu", "default", "app=web")
    assert (found["a"].value, found["a"].window) == (105, 60.5)
    assert (await metrics.resource("cpu", "default", "", "side"))["a"].value == 5
    with pytest.raises(MetricsError, match=r"^container x not present in metrics for pod default/a$"):
        await metrics.resource("cpu", "default", "", "x")
    assert await metrics.resource("memory", "default", "") == {}


def usage(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "containers": [{"name": "c", "usage": {"cpu": "100m"}}], **more}


@pytest.mark.parametrize(
    "item",
    [
        usage(window="9544371h46m7s"),
        usage(window="soon"),
        usage(window=5),
        usage(timestamp="yesterday"),
        usage(timestamp="2026-01-01T11:59:55"),
        usage(metadata=None),
        usage(containers=[{"name": "c", "usage": {"cpu": "much"}}]),
        usage(containers=[5]),
        5,
    ],
    ids=repr,
)
async def test_usage_that_cannot_be_read_is_a_failure_of_its_api(item: Any) -> None:
    with pytest.raises(MetricsError, match=r"^unable to fetch metrics from resource metrics API: "):
        await Adapter({RESOURCE: [item]}).metrics().resource("cpu", "default", "")


@pytest.mark.parametrize(
    "item",
    [
        value("a", "much"),
        value("a", "1", windowSeconds=10**400),
        value("a", "1", windowSeconds="long"),
        {**value("a", "1"), "timestamp": "yesterday"},
        {"describedObject": 5},
        [],
    ],
    ids=lambda item: str(item)[:80],
)
async def test_a_custom_metric_that_cannot_be_read_is_a_failure_of_its_api(item: Any) -> None:
    metrics = Adapter({f"{CUSTOM}/v1beta2/namespaces/default/pods/*/hits": [item]}).metrics()
    with pytest.raises(MetricsError, match=r"^unable to fetch metrics from custom metrics API: "):
        await metrics.pods(PLAIN, "default", "")


async def test_a_value_that_cannot_be_read_is_a_failure_of_its_api() -> None:
    answers = {INGRESS_PATH: [value("main", "much")], f"{EXTERNAL}/namespaces/default/hits": [{"value": "much"}]}
    metrics = Adapter(answers).metrics()
    with pytest.raises(MetricsError, match=r"^unable to fetch metrics from custom metrics API: "):
        await metrics.object(PLAIN, "default", "ingresses.networking.k8s.io", "main")
    with pytest.raises(MetricsError, match=r"^unable to fetch metrics from external metrics API: "):
        await metrics.external(PLAIN, "default")


async def test_no_more_of_an_answer_is_read_than_the_limit() -> None:
    adapter = Adapter({RESOURCE: [usage()], INGRESS_PATH: [value("main", "1")]})
    await adapter.metrics().resource("cpu", "default", "")
    await adapter.metrics().object(PLAIN, "default", "ingresses.networking.k8s.io", "main")
    assert adapter.limits == [8 << 20] * 2


# -- metrics as an autoscaler names them ------------------------------------------------------------------------------
def situation() -> Situation:
    pods = [pod(name) for name in "ab"]
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return Situation("default", 2, 2, "app=web", pods, Tolerances(), Startup(), now)


def calculator(adapter: Adapter) -> Calculator:
    client, clock = Client(adapter), FakeClock()  # type: ignore[arg-type]
    return Calculator(MetricsClient(client, clock), Targets(client, clock))


def target(**amounts: Any) -> v2.MetricTarget:
    return v2.MetricTarget(type="Value" if "value" in amounts else "AverageValue", **amounts)


INGRESS = v2.CrossVersionObjectReference(api_version="networking.k8s.io/v1", kind="Ingress", name="main")
INGRESS_PATH = f"{CUSTOM}/v1beta2/namespaces/default/ingresses.networking.k8s.io/main/hits"


@pytest.mark.parametrize(
    ("metric", "answers", "replicas", "name", "current"),
    [
        (
            v2.MetricSpec(type="Pods", pods=v2.PodsMetricSource(metric=PLAIN, target=target(average_value="5"))),
            {f"{CUSTOM}/v1beta2/namespaces/default/pods/*/hits": [value("a", "10"), value("b", "20")]},
            6,
            "pods metric hits",
            {"averageValue": "15"},
        ),
        (
            v2.MetricSpec(
                type="Object",
                object=v2.ObjectMetricSource(described_object=INGRESS, metric=PLAIN, target=target(value="20")),
            ),
            {INGRESS_PATH: [value("main", "60")]},
            6,
            "Ingress metric hits",
            {"value": "60"},
        ),
        (
            v2.MetricSpec(
                type="Object",
                object=v2.ObjectMetricSource(described_object=INGRESS, metric=PLAIN, target=target(average_value="20")),
            ),
            {INGRESS_PATH: [value("main", "90")]},
            5,
            "external metric hits(nil)",
            {"averageValue": "45"},
        ),
        (
            v2.MetricSpec(
                type="External", external=v2.ExternalMetricSource(metric=QUEUE, target=target(average_value="3"))
            ),
            {f"{EXTERNAL}/namespaces/default/queue": [{"value": "12"}]},
            4,
            "external metric queue(&LabelSelector{MatchLabels:map[string]string{q: a,},"
            "MatchExpressions:[]LabelSelectorRequirement{},})",
            {"averageValue": "6"},
        ),
        (
            v2.MetricSpec(type="External", external=v2.ExternalMetricSource(metric=PLAIN, target=target(value="4"))),
            {f"{EXTERNAL}/namespaces/default/hits": [{"value": "2"}]},
            1,
            "external metric hits(nil)",
            {"value": "2"},
        ),
    ],
    ids=["pods", "object value", "object average", "external average", "external value"],
)
async def test_each_kind_of_metric_has_its_wish_its_name_and_its_figure(
    metric: v2.MetricSpec, answers: Mapping[str, Any], replicas: int, name: str, current: Mapping[str, str]
) -> None:
    found = await calculator(Adapter(answers)).outcome(metric, situation())
    shown = found.status.pods or found.status.object or found.status.external
    assert shown is not None and shown.current is not None
    target_values = {"value": shown.current.value, "averageValue": shown.current.average_value}
    assert (found.replicas, found.name) == (replicas, name)
    assert {key: figure for key, figure in target_values.items() if figure is not None} == current


async def test_failures_name_the_condition_and_the_metric() -> None:
    wanted = v2.MetricSpec(type="External", external=v2.ExternalMetricSource(metric=PLAIN, target=target(value="4")))
    with pytest.raises(MetricFailed) as caught:
        await calculator(Adapter({})).outcome(wanted, situation())
    assert caught.value.reason == "FailedGetExternalMetric"
    assert caught.value.detail.startswith("unable to get external metric default/hits/nil: unable to fetch metrics")
    assert str(caught.value).startswith("failed to get hits external metric value: unable to get external metric")
    with pytest.raises(MetricFailed, match='unknown metric source type "Odd"') as odd:
        await calculator(Adapter({})).outcome(v2.MetricSpec(type="Odd"), situation())
    assert odd.value.reason == "InvalidMetricSourceType"


@pytest.mark.parametrize("kind", ["Pods", "Object", "External"])
@pytest.mark.parametrize("form", ["labels", "values"])
async def test_a_metric_whose_selector_no_request_can_have_is_not_requested(kind: str, form: str) -> None:
    texts = [f"{number:07}" for number in range(10_000)]
    if form == "labels":
        selector = meta_v1.LabelSelector(match_labels=dict.fromkeys(texts, ""))
    else:
        expression = meta_v1.LabelSelectorRequirement(key="a", operator="NotIn", values=texts)
        selector = meta_v1.LabelSelector(match_expressions=[expression])
    source = {"metric": {"name": "queue", "selector": selector}, "target": {"type": "Value", "value": "4"}}
    wanted = serialize.convert({"type": kind, kind.lower(): msgspec.to_builtins(source, enc_hook=str)}, v2.MetricSpec)
    adapter = Adapter({})
    with pytest.raises(MetricFailed) as caught:
        await calculator(adapter).outcome(wanted, situation())
    assert caught.value.reason == f"FailedGet{kind}Metric" and adapter.received == []
    assert (
        caught.value.detail
        == "the metric's selector has more than 65535 bytes, which no request to a metrics API can have"
    )
