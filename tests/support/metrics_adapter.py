"""An adapter of custom and external metrics, as users install one behind an APIService; what it tells is set by the test."""

from __future__ import annotations

import base64
import json
from typing import Any

from aiohttp import web

from kube.client import Client
from kube.clock import SYSTEM, format_time
from kube.selectors import parse_labels
from tests.support.control import ApiUnderTest
from tests.support.extension import Extension

CUSTOM, EXTERNAL = "custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1"
SERVICE, NAMESPACE = "adapter", "metrics"


class MetricsAdapter(Extension):
    """`client` lists the pods that are asked about."""

    client: Client

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pods: dict[str, str] = {}
        """Metric -> the total of all pods of a selector, in thousandths, which they share."""
        self.objects: dict[tuple[str, str, str], str] = {}
        """(resource, name, metric) -> value."""
        self.external: dict[str, list[tuple[dict[str, str], str]]] = {}
        """Metric -> (labels, value) of each of its series."""

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._note])
        for group in (CUSTOM, EXTERNAL):
            app.router.add_get(f"/apis/{group}", self._resources)
        place = f"/apis/{CUSTOM}/namespaces/{{namespace}}"
        app.router.add_get(place + "/pods/*/{metric}", self._of_pods)
        app.router.add_get(place + "/{resource}/{name}/{metric}", self._of_object)
        app.router.add_get(f"/apis/{EXTERNAL}/namespaces/{{namespace}}/{{metric}}", self._of_nothing)
        return app

    async def _resources(self, request: web.Request) -> web.Response:
        group = request.path.removeprefix("/apis/")
        return web.json_response(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []}
        )

    async def _of_pods(self, request: web.Request) -> web.Response:
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        if metric not in self.pods:
            return _missing(f"the server could not find the metric {metric} for pods")
        found = await self.client.call(
            "GET", f"/api/v1/namespaces/{namespace}/pods", query={"labelSelector": request.query["labelSelector"]}
        )
        names = [item["metadata"]["name"] for item in json.loads(found)["items"]]
        share = int(self.pods[metric]) // max(1, len(names))
        return self._values([self._about("Pod", namespace, name, metric, f"{share}m") for name in names])

    async def _of_object(self, request: web.Request) -> web.Response:
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        resource, name = request.match_info["resource"], request.match_info["name"]
        value = self.objects.get((resource, name, metric))
        if value is None:
            return _missing(f"the server could not find the metric {metric} for {resource} {name}")
        return self._values([self._about("Service", namespace, name, metric, value)])

    async def _of_nothing(self, request: web.Request) -> web.Response:
        metric, selector = request.match_info["metric"], parse_labels(request.query.get("labelSelector", ""))
        items = [
            {"metricName": metric, "metricLabels": labels, "timestamp": format_time(SYSTEM.now()), "value": value}
            for labels, value in self.external.get(metric, ())
            if selector.matches(labels)
        ]
        return web.json_response({"kind": "ExternalMetricValueList", "apiVersion": EXTERNAL, "items": items})

    def _about(self, kind: str, namespace: str, name: str, metric: str, value: str) -> dict[str, Any]:
        about = {"kind": kind, "namespace": namespace, "name": name, "apiVersion": "/v1"}
        stamp = format_time(SYSTEM.now())
        return {"describedObject": about, "metric": {"name": metric}, "timestamp": stamp, "value": value}

    def _values(self, items: list[dict[str, Any]]) -> web.Response:
        return web.json_response({"kind": "MetricValueList", "apiVersion": CUSTOM, "metadata": {}, "items": items})


def _missing(message: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
    return web.json_response({**status, "message": message}, status=404)


async def install(server: ApiUnderTest, adapter: MetricsAdapter, address: str) -> None:
    """Do what an adapter's manifest does: a namespace, a Service with its endpoints, two APIServices."""
    await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    ports = [{"port": 443, "targetPort": adapter.port, "protocol": "TCP"}]
    service = {"metadata": {"name": SERVICE}, "spec": {"ports": ports}}
    await server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/services", service)
    slice_ = {
        "metadata": {"name": f"{SERVICE}-1", "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "", "port": adapter.port, "protocol": "TCP"}],
    }
    await server.request("POST", f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", slice_)
    for served in (CUSTOM, EXTERNAL):
        group, version = served.split("/")
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": NAMESPACE, "name": SERVICE},
            "caBundle": base64.b64encode(adapter.authority.cert_pem).decode(),
        }
        registration = {"metadata": {"name": f"{version}.{group}"}, "spec": spec}
        made = await server.request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", registration)
        assert made.status == 201, made.json
