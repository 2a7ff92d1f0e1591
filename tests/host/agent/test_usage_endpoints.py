"""Metrics of real containers through the kubelet's API."""

import asyncio
import re

import aiohttp

from kube.clock import parse_time
from tests.host.agent.conftest import Node, Served

BUSY = "dd if=/dev/zero of=/big bs=1M count=8 2>/dev/null; while :; do :; done"


def test_the_summary_reports_the_usage_of_the_node_and_each_container(node: Node) -> None:
    async def body(served: Served) -> None:
        folder = served.folder / "volumes-of-pods" / "uid" / "volumes" / "kubernetes.io~empty-dir" / "scratch"
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(bytes(1 << 20))
        async with aiohttp.ClientSession() as http:

            async def summary(query: str = "") -> dict[str, dict]:  # type: ignore[type-arg]
                async with http.get(served.url("/stats/summary" + query), ssl=served.tls) as answer:
                    assert answer.status == 200
                    found: dict[str, dict] = await answer.json()  # type: ignore[type-arg]
                    return found

            first = await summary()
            await asyncio.sleep(1.5)
            second = await summary()
            short = await summary("?only_cpu_and_memory=true")
        (pod,) = second["pods"]
        assert pod["podRef"] == {"name": "pod", "namespace": "default", "uid": "uid"}
        main, web = sorted(pod["containers"], key=lambda container: container["name"])
        assert (main["name"], web["name"]) == ("main", "web")
        assert main["cpu"]["usageNanoCores"] > 20 * web["cpu"]["usageNanoCores"]
        assert (
            main["cpu"]["usageCoreNanoSeconds"] > first["pods"][0]["containers"][0]["cpu"]["usageCoreNanoSeconds"] > 0
        )
        assert 0 < main["memory"]["workingSetBytes"] < second["node"]["memory"]["workingSetBytes"]
        assert main["logs"]["capacityBytes"] > 0
        assert pod["network"]["name"] == "eth0"
        assert [volume["name"] for volume in pod["volume"]] == ["scratch"]
        assert 1 << 20 <= pod["volume"][0]["usedBytes"] < 2 << 20
        assert pod["ephemeral-storage"]["usedBytes"] >= 1 << 20
        assert pod["process_stats"]["process_count"] > 0
        shown = second["node"]
        assert shown["fs"]["capacityBytes"] > shown["fs"]["usedBytes"] > 0
        assert shown["rlimit"]["maxpid"] > shown["rlimit"]["curproc"] > 0
        parse_time(shown["startTime"])
        assert "network" not in short["node"]
        assert "volume" not in short["pods"][0]

    node.run(body, script=BUSY)


def test_the_metrics_server_finds_its_counters(node: Node) -> None:
    async def body(served: Served) -> None:
        async with aiohttp.ClientSession() as http:
            texts = {}
            for path in ("/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes"):
                async with http.get(served.url(path), ssl=served.tls) as answer:
                    assert answer.status == 200
                    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                    texts[path] = await answer.text()
        resource = texts["/metrics/resource"]
        labels = r'\{container="main",namespace="default",pod="pod"\}'
        assert re.search(rf"^container_cpu_usage_seconds_total{labels} [0-9.e+-]+ \d{{13}}$", resource, re.M)
        assert re.search(rf"^container_memory_working_set_bytes{labels} [1-9][0-9.e+]* \d{{13}}$", resource, re.M)
        assert re.search(rf"^container_start_time_seconds{labels} [1-9][0-9.e+]+$", resource, re.M)
        assert re.search(r"^node_memory_working_set_bytes [1-9][0-9.e+]+ \d{13}$", resource, re.M)
        assert "\nresource_scrape_error 0\n" in resource
        assert "kubelet_running_pods 1\n" in texts["/metrics"]
        assert 'kubelet_running_containers{container_state="running"} 2\n' in texts["/metrics"]
        assert "process_resident_memory_bytes" in texts["/metrics"]
        assert re.search(
            r'^container_network_receive_bytes_total\{container="",id="[^"]+",image="",interface="eth0"',
            texts["/metrics/cadvisor"],
            re.M,
        )
        assert "# TYPE prober_probe_total counter\n" in texts["/metrics/probes"]
        slice_ = r'id="/kubepods/poduid",image="",name="",namespace="default",pod="pod"'
        assert re.search(
            rf'^container_cpu_usage_seconds_total{{container="",cpu="total",{slice_}}}',
            texts["/metrics/cadvisor"],
            re.M,
        )
        assert re.search(r'^container_memory_rss\{container="",id="/",', texts["/metrics/cadvisor"], re.M)

    node.run(body)
