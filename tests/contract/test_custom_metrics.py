"""Autoscaling by metrics of an adapter: an extension server behind APIServices, asked through the aggregation layer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.controllers import manager
from control.controllers.autoscaling.settings import AutoscalingSettings
from kube.api import apps_v1, core_v1
from tests.support.addresses import own_address
from tests.support.control import api_server
from tests.support.extension import serve
from tests.support.hollow import HollowNodes, eventually, running
from tests.support.hollow_cluster import Cluster, deployment, running_pods, service
from tests.support.metrics_adapter import NAMESPACE, SERVICE, MetricsAdapter, install

pytestmark = pytest.mark.asyncio(loop_scope="module")
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Cluster, MetricsAdapter]]:
    """A cluster with an autoscaler that comes round twice a second, an adapter, and a Deployment of two pods."""
    tmp_path = tmp_path_factory.mktemp("metrics")
    address, proxy_ca = own_address(), tmp_path / "pki" / "front-proxy-ca.crt"
    settings = AutoscalingSettings(sync_period=0.5, downscale_stabilization=0.0)
    async with api_server(tmp_path) as server:
        client = server.client()
        nodes = HollowNodes(client)
        config = manager.ControllerConfig(autoscaling=settings)
        name = f"{SERVICE}.{NAMESPACE}.svc"
        async with (
            serve(tmp_path / "adapter", address, name, proxy_ca, MetricsAdapter) as adapter,
            running(server.controllers(config), server.scheduler(), nodes.run()),
        ):
            adapter.client = client
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            await install(server, adapter, address)
            await nodes.register("n1", cpu="16")
            cluster = Cluster(server, client, nodes)
            await client.create(service())
            await client.create(deployment(replicas=2))
            await eventually(lambda: running_pods(cluster, 2))
            yield cluster, adapter


async def autoscale(cluster: Cluster, metric: dict[str, Any]) -> None:
    """Let `web` be scaled by one metric, from now on."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": [metric]}
    made = await cluster.server.request("POST", HPAS, {"metadata": {"name": "web"}, "spec": spec})
    if made.status == 409:
        made = await cluster.server.request("PATCH", f"{HPAS}/web", {"spec": spec}, headers=MERGE)
    assert made.status in (200, 201), made.json


async def scaled(cluster: Cluster, kind: str, replicas: int, current: dict[str, str]) -> dict[str, Any]:
    """Wait until a metric of that type has led to that many replicas, and is reported; return the status."""
    found: dict[str, Any] = {}

    async def there() -> bool:
        nonlocal found
        web = await cluster.client.get(apps_v1.Deployment, "web", "default")
        found = (await cluster.server.request("GET", f"{HPAS}/web")).json.get("status", {})
        counts = (
            web.spec.replicas,
            web.status.ready_replicas,
            found.get("currentReplicas"),
            found.get("desiredReplicas"),
        )
        seen = [
            (each["type"], each[kind.lower()]["current"])
            for each in found.get("currentMetrics", ())
            if kind.lower() in each
        ]
        return counts == (replicas,) * 4 and seen == [(kind, current)]

    await eventually(there)
    return found


async def is_reported(cluster: Cluster, text: str) -> bool:
    return any(text in (event.message or "") for event in await cluster.events())


async def test_an_error_of_the_adapter_is_reported_and_changes_nothing(site: tuple[Cluster, MetricsAdapter]) -> None:
    cluster, adapter = site
    target = {"type": "AverageValue", "averageValue": "100"}
    await autoscale(cluster, {"type": "Pods", "pods": {"metric": {"name": "unknown"}, "target": target}})

    async def noted() -> dict[str, Any] | None:
        status: dict[str, Any] = (await cluster.server.request("GET", f"{HPAS}/web")).json.get("status", {})
        conditions = {(c["type"], c["status"], c["reason"]) for c in status.get("conditions", ())}
        return status if ("ScalingActive", "False", "FailedGetPodsMetric") in conditions else None

    await eventually(lambda: is_reported(cluster, "the server could not find the metric unknown for pods"))
    found = await eventually(noted)
    # Nothing was ever wished for: `kubectl describe` shows "2 current / 0 desired", as it does elsewhere.
    assert (found["currentReplicas"], found["desiredReplicas"]) == (2, 0)
    requested = [path for method, path, _ in adapter.received if "/pods/" in path]
    assert "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/unknown?labelSelector=app%3Dweb" in requested
    raw = await cluster.kubectl("get", "--raw", "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queued")
    assert '"kind": "ExternalMetricValueList"' in raw


async def test_the_adapters_metrics_of_pods_of_an_object_and_of_nothing_in_the_cluster_scale_a_deployment(
    site: tuple[Cluster, MetricsAdapter],
) -> None:
    cluster, adapter = site
    adapter.pods["http_requests"] = "400000"  # 400 of all pods together
    target = {"type": "AverageValue", "averageValue": "100"}
    await autoscale(cluster, {"type": "Pods", "pods": {"metric": {"name": "http_requests"}, "target": target}})
    found = await scaled(cluster, "Pods", 4, {"averageValue": "100"})
    await eventually(lambda: is_reported(cluster, "New size: 4; reason: pods metric http_requests above target"))
    active = next(c for c in found["conditions"] if c["type"] == "ScalingActive")
    assert (active["status"], active["reason"]) == ("True", "ValidMetricFound")
    assert "100/100" in await cluster.kubectl("get", "hpa", "web")

    adapter.objects["services", "web", "in_flight"] = "1500m"
    about = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    source = {
        "describedObject": about,
        "metric": {"name": "in_flight"},
        "target": {"type": "Value", "value": "1"},
    }
    await autoscale(cluster, {"type": "Object", "object": source})
    found = await scaled(cluster, "Object", 10, {"value": "1500m"})
    limited = next(c for c in found["conditions"] if c["type"] == "ScalingLimited")
    assert (limited["status"], limited["reason"]) == ("True", "TooManyReplicas")
    assert "1500m/1" in await cluster.kubectl("get", "hpa", "web")

    adapter.external["queued"] = [({"queue": "mine"}, "90"), ({"queue": "mine"}, "30"), ({"queue": "theirs"}, "5k")]
    metric = {"name": "queued", "selector": {"matchLabels": {"queue": "mine"}}}
    target = {"type": "AverageValue", "averageValue": "60"}
    await autoscale(cluster, {"type": "External", "external": {"metric": metric, "target": target}})
    await scaled(cluster, "External", 2, {"averageValue": "60"})
    await eventually(lambda: is_reported(cluster, "New size: 2; reason: All metrics below target"))
    assert "60/60 (avg)" in await cluster.kubectl("get", "hpa", "web")
