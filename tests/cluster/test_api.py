"""The API server as a real cluster's clients find it: groups, flow control, kubectl proxy, protobuf beside running pods."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kube.schema import wire
from tests.support.cluster import NODE, Cluster, eventually
from tests.support.kube import ready_pods, web

PROTOBUF = "Accept: application/vnd.kubernetes.protobuf"


@contextlib.contextmanager
def proxy(cluster: Cluster) -> Iterator[str]:
    """Run `kubectl proxy` on the node and give its address."""
    argv = [*cluster.host.enter, *cluster.kubectl_argv("proxy", "--port=0")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"Starting to serve on (127\.0\.0\.1:\d+)", line)
        assert found is not None, line
        yield found[1]
    finally:
        process.terminate()
        process.wait(10)


def test_every_group_version_is_registered_and_available(shared: Cluster) -> None:
    def available() -> bool:
        items = shared.get("apiservices")["items"]
        output = {i["metadata"]["name"]: i.get("status", {}).get("conditions", [{}])[0].get("status") for i in items}
        return {"v1.", "v1.apps", "v1.batch"} <= set(output) and set(output.values()) == {"True"}

    eventually(available, "all of them are available")
    listed = shared.kubectl("get", "flowschemas").stdout
    assert re.search(r"^system-node-high +node-high +400 +ByUser +\S+ +False$", listed, re.M), listed


def test_kubectl_proxy_leads_to_the_api_to_pods_services_and_nodes(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    pod = ready_pods(shared, ns, "app=web")[0]["metadata"]["name"]
    with proxy(shared) as address:
        assert json.loads(shared.http(address, f"/api/v1/namespaces/{ns}/pods/{pod}"))["metadata"]["name"] == pod
        for place in ("services/web:80/proxy/", f"pods/{pod}/proxy/"):
            eventually(
                lambda place=place: pod in shared.http(address, f"/api/v1/namespaces/{ns}/{place}"),  # type: ignore[misc]
                f"{place} answers with the pod's name",
            )
        for name in (NODE, f"{NODE}:10250", f"https:{NODE}:10250"):
            assert "ok" in shared.http(address, f"/api/v1/nodes/{name}/proxy/healthz")
        # Another port is another server on the node: here the proxy's health.
        assert "lastUpdated" in shared.http(address, f"/api/v1/nodes/{NODE}:10256/proxy/healthz")
        listing = shared.http(address, f"/api/v1/nodes/{NODE}/proxy/logs/")
        assert [each.name for each in Path("/var/log").iterdir() if f">{each.name}" not in listing] == []


def test_a_client_that_speaks_protobuf_sees_the_running_pods(shared: Cluster, ns: str) -> None:
    web(shared, ns, 2)
    wanted = {p["metadata"]["name"]: p["status"]["podIP"] for p in ready_pods(shared, ns, "app=web")}
    with proxy(shared) as address:
        url = f"http://{address}/api/v1/namespaces/{ns}/pods?labelSelector=app%3Dweb"
        argv = [*shared.host.enter, "curl", "-sS", "--max-time", "10", "-H", PROTOBUF, url]
        data = subprocess.run(argv, check=True, capture_output=True, timeout=20).stdout
    api_version, kind, message = wire.open_envelope(data)
    assert (api_version, kind) == ("v1", "PodList")
    items = [value for number, value in wire._fields(message) if number == 2]
    pods = [wire.decode(item, "core_v1", "Pod") for item in items if isinstance(item, bytes)]
    assert {p["metadata"]["name"]: p["status"]["podIP"] for p in pods} == wanted
