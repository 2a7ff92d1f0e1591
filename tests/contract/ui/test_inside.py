"""Numbers of the inside view, from a real API server and from texts of an agent and a proxy."""

from __future__ import annotations

from typing import Any

from kube.client import Client, Response
from wherry.testing.async_cluster import AsyncCluster
from wherry.ui import inside

AGENT = b"""kubelet_running_pods 3
kubelet_pod_worker_duration_seconds_sum{operation_type="sync"} 1.5
kubelet_pod_worker_duration_seconds_count{operation_type="sync"} 3
wherry_asyncio_tasks 90
"""
PROXY = b'kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 7\n'


class Answering:
    """A transport that answers paths of one node."""

    def __init__(self, answers: dict[str, Response]) -> None:
        self.answers = answers

    async def request(self, method: str, path: str, **_: Any) -> Response:
        return self.answers[path]


async def test_the_api_servers_numbers_are_those_of_its_metrics() -> None:
    async with AsyncCluster(1) as cluster:
        found = await inside.numbers(cluster.client, "")
    assert found.keys() == {"server"} and found["server"]["own"]
    values = found["server"]["values"]
    assert values["apiserver_request_total"]["POST"] > 0
    assert values["etcd_requests_total"]["create"] > 0
    assert any(key.startswith("workload-high · ") for key in values["apiserver_flowcontrol_dispatched_requests_total"])
    assert values["scheduler_pending_pods"]["unschedulable"] == 0
    assert "namespace" in values["workqueue_depth"]


async def test_agent_and_proxy_have_numbers_or_the_reason_for_which_they_have_none() -> None:
    node = "/api/v1/nodes/node-1/proxy/metrics"
    proxy = "/api/v1/nodes/http:node-1:10249/proxy/metrics"
    refused = b'{"kind":"Status","code":503,"reason":"ServiceUnavailable","message":"connection refused"}'
    answers = {
        "/metrics": Response(200, {}, b"other 1\n"),
        node: Response(200, {}, AGENT),
        proxy: Response(503, {}, refused),
    }
    client = Client(Answering(answers))  # type: ignore[arg-type]
    found = await inside.numbers(client, "node-1")
    assert found["server"] == {"why": "the answer has none of the metrics that are shown here"}
    assert found["agent"]["own"] and found["agent"]["values"]["kubelet_running_pods"] == {"": 3}
    assert found["proxy"] == {"why": "connection refused"}
    answers[proxy] = Response(200, {}, PROXY)
    found = await inside.numbers(client, "node-1")
    assert found["proxy"]["values"]["kubeproxy_sync_proxy_rules_duration_seconds_count"] == {"": 7}
