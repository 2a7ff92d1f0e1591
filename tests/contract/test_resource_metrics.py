"""metrics.k8s.io as kubectl and autoscalers see it, over a listener in an agent's place that tells counters."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.storage import codec
from tests.contract.test_api_nodes import cluster
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually

ROOT = "/apis/metrics.k8s.io/v1beta1"


def counters() -> bytes:
    """A node that uses half a core, of which the pod's container uses a quarter."""
    now = time.time()
    stamp, labels = int(now * 1000), 'container="c",namespace="default",pod="p"'
    text = (
        f"node_cpu_usage_seconds_total {stamp / 2000} {stamp}\n"
        f"node_memory_working_set_bytes 1048576 {stamp}\n"
        f"container_cpu_usage_seconds_total{{{labels}}} {stamp / 4000} {stamp}\n"
        f"container_memory_working_set_bytes{{{labels}}} 2097152 {stamp}\n"
        f"container_start_time_seconds{{{labels}}} 1000\n"
    )
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text.encode())


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with cluster(tmp_path) as (server, node):
        node.answer = counters
        item = await server.api.store.get("/registry/pods/default/p")
        assert item is not None
        running = {"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        pod = codec.decode(item.value) | {"status": {"phase": "Running", "containerStatuses": [running]}}
        pod["metadata"]["labels"] = {"app": "web"}
        written = await server.api.store.update(item.key, codec.encode(pod), item.revision)
        await server.api.cache.wait_fresh(written.revision)
        yield server


async def test_kubectl_top_shows_nodes_and_pods(server: ApiUnderTest) -> None:
    nodes = (await server.kubectl("top", "nodes")).stdout.splitlines()
    assert nodes[0].split()[0] == "NAME"
    assert nodes[1].split()[:2] == ["n", "500m"]
    pods = (await server.kubectl("top", "pods", "--containers")).stdout.splitlines()
    assert [line.split() for line in pods[1:]] == [["p", "c", "250m", "2Mi"]]


async def test_lists_choose_by_labels_and_show_tables(server: ApiUnderTest) -> None:
    path = f"{ROOT}/namespaces/default/pods"
    for selector, number in (("app=web", 1), ("app=other", 0), ("", 1)):
        found = (await server.request("GET", f"{path}?labelSelector={selector}")).json
        assert (found["kind"], len(found["items"])) == ("PodMetricsList", number)
    shown = (await server.kubectl("get", "pods.metrics.k8s.io")).stdout.split()
    assert shown[:6] == ["NAME", "CPU", "MEMORY", "WINDOW", "p", "250m"]
    assert (await server.request("GET", f"{ROOT}/pods")).json["items"][0]["containers"][0]["usage"]["cpu"] == "250m"
    other = await server.request("GET", f"{ROOT}/namespaces/elsewhere/pods")
    assert other.json["items"] == []


async def test_what_is_not_there_and_what_cannot_be_done_is_refused(server: ApiUnderTest) -> None:
    missing = await server.request("GET", f"{ROOT}/namespaces/default/pods/none")
    assert (missing.status, missing.json["message"]) == (404, 'podmetrics.metrics.k8s.io "default/none" not found')
    node = await server.request("GET", f"{ROOT}/nodes/none")
    assert (node.status, node.json["message"]) == (404, 'nodemetrics.metrics.k8s.io "none" not found')
    assert (await server.request("GET", f"{ROOT}/nodes/n")).json["usage"] == {"cpu": "500m", "memory": "1Mi"}
    assert (await server.request("POST", f"{ROOT}/nodes", {})).status == 405
    assert (await server.request("GET", f"{ROOT}/services")).status == 404
    assert (await server.request("GET", f"{ROOT}/nodes", user=("somebody", ()))).status == 403


async def test_discovery_lists_the_group(server: ApiUnderTest) -> None:
    found = (await server.request("GET", ROOT)).json
    assert [(r["name"], r["kind"], r["verbs"]) for r in found["resources"]] == [
        ("nodes", "NodeMetrics", ["get", "list"]),
        ("pods", "PodMetrics", ["get", "list"]),
    ]


async def test_a_metrics_server_that_is_installed_takes_over_until_it_goes(server: ApiUnderTest) -> None:
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"

    async def status(wanted: int, what: str = f"{ROOT}/nodes") -> bool:
        return (await server.request("GET", what)).status == wanted

    await eventually(lambda: status(200, path))
    assert "service" not in (await server.request("GET", path)).json["spec"]
    service = {"namespace": "kube-system", "name": "metrics-server"}
    patch = {"spec": {"service": service, "insecureSkipTLSVerify": True}}
    kind = {"Content-Type": "application/merge-patch+json"}
    assert (await server.request("PATCH", path, patch, headers=kind)).status == 200
    await eventually(lambda: status(503))
    groups = (await server.request("GET", "/apis")).json["groups"]
    assert [g["name"] for g in groups].count("metrics.k8s.io") == 1
    assert (await server.request("DELETE", path)).status == 200
    await eventually(lambda: status(200))
