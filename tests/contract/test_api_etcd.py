"""API servers on etcd: one, two at once, and what happens when etcd is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.storage.etcd import cluster as etcd_cluster
from tests.support.control import Answer, ApiUnderTest, api_server
from tests.support.etcd import Etcd, etcd, needs_etcd, needs_etcdctl

pytestmark = needs_etcd
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
SERVICES = "/api/v1/namespaces/default/services"


def on(cluster: Etcd) -> dict[str, Any]:
    """Return the configuration that chooses this etcd."""
    files = {"etcd_ca_file": cluster.ca_file, "etcd_cert_file": cluster.cert_file, "etcd_key_file": cluster.key_file}
    return {"store": "etcd", "etcd_servers": tuple(cluster.servers), **(files if cluster.tls else {})}


@contextlib.asynccontextmanager
async def two_servers(path: Path, **more: Any) -> AsyncIterator[tuple[Etcd, ApiUnderTest, ApiUnderTest]]:
    async with etcd(path / "etcd") as cluster:
        async with (
            api_server(path / "a", **on(cluster), **more) as a,
            api_server(path / "b", **on(cluster), **more) as b,
        ):
            yield cluster, a, b


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def until_done(api: ApiUnderTest, method: str, path: str, body: Any = None) -> Answer:
    """Send a request again while the server cannot reach a quorum, as clients do."""
    async with asyncio.timeout(60):
        while (answer := await api.request(method, path, body)).status >= 500:
            assert answer.json["kind"] == "Status"
            await asyncio.sleep(0.1)
    return answer


def service(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}


@needs_etcdctl
async def test_objects_are_in_etcd_under_upstreams_keys(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd", tls=True) as cluster:
        async with api_server(tmp_path / "a", **on(cluster)) as api:
            await api.kubectl("create", "deployment", "nginx", "--image=nginx")
            shown = cluster.etcdctl("get", "/registry/deployments/default/nginx", "--print-value-only")
            assert json.loads(shown)["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx"
        async with api_server(tmp_path / "a", **on(cluster)) as api:
            found = await api.kubectl("get", "deployment", "nginx", "-o", "name")
            assert found.stdout.strip() == "deployment.apps/nginx"


async def test_a_read_at_one_server_shows_what_was_written_at_the_other(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (_, a, b):
        for index in range(40):
            writer, reader = (a, b) if index % 2 else (b, a)
            made = await writer.request("POST", CONFIG_MAPS, config_map(f"c{index}"))
            assert made.status == 201
            assert (await reader.request("GET", f"{CONFIG_MAPS}/c{index}")).status == 200
            listed = (await reader.request("GET", CONFIG_MAPS)).json
            assert f"c{index}" in [item["metadata"]["name"] for item in listed["items"]]
            assert (await writer.request("DELETE", f"{CONFIG_MAPS}/c{index}")).status == 200
            assert (await reader.request("GET", f"{CONFIG_MAPS}/c{index}")).status == 404


async def test_when_a_member_of_three_is_lost_nothing_acknowledged_is_lost_and_nothing_stale_is_read(
    tmp_path: Path,
) -> None:
    async with etcd(tmp_path / "etcd", members=3) as cluster:
        async with api_server(tmp_path / "a", **on(cluster)) as a, api_server(tmp_path / "b", **on(cluster)) as b:
            counts, stop = [0, 0, 0], asyncio.Event()

            async def work(number: int) -> None:
                """Count upwards in an object through one server, and read each count through the other."""
                writer, reader = (a, b) if number % 2 else (b, a)
                path = f"{CONFIG_MAPS}/c{number}"
                made = await until_done(writer, "POST", CONFIG_MAPS, config_map(f"c{number}", n="0"))
                assert made.status == 201
                while not stop.is_set():
                    wanted = str(counts[number] + 1)
                    patch = {"metadata": {"name": f"c{number}"}, "apiVersion": "v1", "kind": "ConfigMap"}
                    written = await until_done(writer, "PUT", path, {**patch, "data": {"n": wanted}})
                    assert written.status == 200
                    counts[number] += 1
                    read = await until_done(reader, "GET", path)
                    assert read.json["data"]["n"] == wanted

            async def progress() -> None:
                before = list(counts)
                async with asyncio.timeout(60):
                    while any(now < then + 10 for now, then in zip(counts, before, strict=True)):
                        await asyncio.sleep(0.05)

            async with asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(work(number))
                for member in cluster.members:
                    await progress()
                    member.kill()
                    await progress()
                    member.start()
                    await cluster.wait_healthy(member)
                stop.set()
            for api in (a, b):
                listed = (await api.request("GET", CONFIG_MAPS)).json["items"]
                found = {item["metadata"]["name"]: item["data"].get("n") for item in listed}
                assert [found[f"c{number}"] for number in range(3)] == [str(count) for count in counts]


async def test_servers_that_start_a_cluster_at_the_same_time_all_come_up(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd") as cluster, contextlib.AsyncExitStack() as stack:

        async def start(name: str) -> ApiUnderTest:
            return await stack.enter_async_context(api_server(tmp_path / name, **on(cluster)))

        servers = await asyncio.gather(*(start(name) for name in "abc"))
        for api in servers:
            found = (await api.request("GET", "/api/v1/namespaces/default/services/kubernetes")).json
            assert found["spec"]["clusterIP"] == "10.96.0.1"


async def test_of_writers_at_two_servers_with_one_resource_version_one_gets_a_conflict(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (_, a, b):
        made = (await a.request("POST", CONFIG_MAPS, config_map("c"))).json
        changes = [{**made, "data": {"by": name}} for name in "ab"]
        answers = await asyncio.gather(
            a.request("PUT", f"{CONFIG_MAPS}/c", changes[0]), b.request("PUT", f"{CONFIG_MAPS}/c", changes[1])
        )
        assert sorted(answer.status for answer in answers) == [200, 409]


async def test_services_made_at_two_servers_share_neither_address_nor_node_port(tmp_path: Path) -> None:
    async with two_servers(tmp_path, service_cidr="10.96.0.0/26", node_port_range=(30000, 30040)) as (_, a, b):
        answers = await asyncio.gather(
            *(
                api.request("POST", SERVICES, service(f"{name}{i}"))
                for i in range(12)
                for name, api in (("a", a), ("b", b))
            )
        )
        assert {answer.status for answer in answers} == {201}
        specs = [answer.json["spec"] for answer in answers]
        addresses = [spec["clusterIP"] for spec in specs]
        ports = [spec["ports"][0]["nodePort"] for spec in specs]
        assert len(set(addresses)) == len(set(ports)) == 24
        # What one server's Service gives back, the other server may hand out.
        for index in range(12):
            assert (await a.request("DELETE", f"{SERVICES}/a{index}")).status == 200
        wanted = {**service("again")["spec"], "clusterIP": addresses[0]}
        wanted["ports"] = [{"port": 80, "nodePort": ports[0]}]
        again = await b.request("POST", SERVICES, {"metadata": {"name": "again"}, "spec": wanted})
        assert again.status == 201, again.json


async def test_without_etcd_requests_fail_with_a_status_and_readiness_with_them_until_it_is_back(
    tmp_path: Path,
) -> None:
    async with etcd(tmp_path / "etcd") as cluster, api_server(tmp_path / "a", **on(cluster)) as api:
        assert (await api.request("POST", CONFIG_MAPS, config_map("c"))).status == 201
        cluster.members[0].kill()
        refused = await api.request("GET", f"{CONFIG_MAPS}/c")
        assert refused.status == 500 and refused.json["kind"] == "Status" and "etcd" in refused.json["message"]
        async with asyncio.timeout(30):
            while (await api.request("GET", "/readyz")).status == 200:
                await asyncio.sleep(0.05)
        cluster.members[0].start()
        await cluster.wait_healthy(cluster.members[0])
        async with asyncio.timeout(30):
            while (await api.request("GET", "/readyz")).status != 200:
                await asyncio.sleep(0.05)
        assert (await api.request("GET", f"{CONFIG_MAPS}/c")).status == 200


async def endpoint_addresses(api: ApiUnderTest) -> tuple[list[str], list[str]]:
    """Return the addresses of the Service `kubernetes` as its Endpoints and its slice have them."""
    endpoints = (await api.request("GET", "/api/v1/namespaces/default/endpoints/kubernetes")).json
    slice_ = (await api.request("GET", SLICES)).json
    addresses = [address["ip"] for subset in endpoints.get("subsets", []) for address in subset["addresses"]]
    return addresses, [endpoint["addresses"][0] for endpoint in slice_.get("endpoints", [])]


async def test_the_service_kubernetes_leads_to_the_servers_that_run(tmp_path: Path) -> None:
    async def reach(api: ApiUnderTest, wanted: list[str]) -> None:
        async with asyncio.timeout(40):
            while await endpoint_addresses(api) != (wanted, wanted):
                await asyncio.sleep(0.1)

    async with etcd(tmp_path / "etcd") as cluster:
        async with api_server(tmp_path / "a", **on(cluster), advertise_address="192.0.2.10") as a:
            await reach(a, ["192.0.2.10"])
            async with api_server(tmp_path / "b", **on(cluster), advertise_address="192.0.2.9"):
                await reach(a, ["192.0.2.9", "192.0.2.10"])
            await reach(a, ["192.0.2.10"])


async def leader(api: ApiUnderTest, name: str) -> str:
    """Return who holds a lease of kube-system, empty for nobody."""
    found = await api.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}")
    return str(found.json["spec"].get("holderIdentity") or "") if found.status == 200 else ""


async def available(api: ApiUnderTest, name: str, replicas: int) -> None:
    """Wait until the controllers have made a Deployment's pods."""
    path = f"/apis/apps/v1/namespaces/default/deployments/{name}"
    async with asyncio.timeout(60):
        while (await api.request("GET", path)).json.get("status", {}).get("replicas") != replicas:
            await asyncio.sleep(0.1)


async def test_controllers_work_in_one_server_and_in_the_other_when_it_has_gone(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd") as cluster:
        settings = {**on(cluster), "enable_controllers": True, "enable_scheduler": True}
        async with api_server(tmp_path / "b", **on(cluster)) as watching:
            async with api_server(tmp_path / "a", **settings) as a:
                async with asyncio.timeout(30):
                    while not (first := await leader(a, "kube-controller-manager")):
                        await asyncio.sleep(0.05)
                other = contextlib.AsyncExitStack()
                c = await other.enter_async_context(api_server(tmp_path / "c", **settings))
                await c.kubectl("create", "deployment", "one", "--image=x", "--replicas=3")
                await available(c, "one", 3)
                assert await leader(c, "kube-controller-manager") == first
                async with asyncio.timeout(30):
                    while not await leader(c, "kube-scheduler"):
                        await asyncio.sleep(0.05)
            # The first one has released its leases, so that the other need not wait until they expire.
            try:
                await c.kubectl("create", "deployment", "two", "--image=x", "--replicas=3")
                await available(watching, "two", 3)
                assert await leader(watching, "kube-controller-manager") not in ("", first)
                pods = (await watching.request("GET", "/api/v1/namespaces/default/pods")).json["items"]
                assert len(pods) == 6
            finally:
                await other.aclose()


async def test_a_member_that_hangs_is_left_by_writes_reads_and_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the pings, which would end the streams too, later.
    options = [(name, 10**9 if name == "grpc.keepalive_time_ms" else value) for name, value in etcd_cluster._OPTIONS]
    monkeypatch.setattr(etcd_cluster, "_OPTIONS", options)
    async with etcd(tmp_path / "etcd", members=3) as cluster, api_server(tmp_path / "a", **on(cluster)) as api:
        for number, member in enumerate(cluster.members):
            assert member.process is not None
            member.process.send_signal(signal.SIGSTOP)
            try:
                made = await until_done(api, "POST", CONFIG_MAPS, config_map(f"c{number}"))
                assert made.status in (201, 409)
                # A list waits until the cache, and so the watch, has come as far as the write.
                listed = (await until_done(api, "GET", CONFIG_MAPS)).json["items"]
                assert f"c{number}" in [item["metadata"]["name"] for item in listed]
            finally:
                member.process.send_signal(signal.SIGCONT)
            await cluster.wait_healthy(member)
