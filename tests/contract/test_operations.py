"""Operation of a server: health, metrics, time limits, the queues, and shutdown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from control.main import run
from control.registry import creation
from control.registry.registry import Registry
from tests.support.control import ADMIN, ApiUnderTest, api_server
from tests.support.ports import reserve

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
COMPONENT = 'component="apiserver"'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api"), enable_controllers=True) as server:
        yield server


async def metrics(api: ApiUnderTest, path: str = "/metrics") -> str:
    return (await api.request("GET", path)).body.decode()


def samples(text: str, name: str) -> list[dict[str, str]]:
    """Return the labels of a metric's samples."""
    found = re.findall(rf"^{name}(?:{{(.*?)}})? ", text, re.M)
    return [dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)) for labels in found]


async def test_requests_are_counted_under_upstreams_labels(api: ApiUnderTest) -> None:
    await api.request("POST", CONFIGMAPS, {"metadata": {"name": "m"}})
    await api.request("POST", CONFIGMAPS + "?dryRun=All", {"metadata": {"name": "dry"}})
    await api.request("GET", CONFIGMAPS)
    apply = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    await api.request("PATCH", f"{CONFIGMAPS}/m?fieldManager=t&force=true", apply, headers=headers)
    await api.request("GET", "/livez")
    text = await metrics(api)
    reported = samples(text, "apiserver_request_total")
    base = {"group": "", "version": "v1", "resource": "configmaps", "subresource": "", "component": "apiserver"}
    assert {**base, "verb": "POST", "dry_run": "", "scope": "resource", "code": "201"} in reported
    assert {**base, "verb": "POST", "dry_run": "All", "scope": "resource", "code": "201"} in reported
    assert {**base, "verb": "LIST", "dry_run": "", "scope": "namespace", "code": "200"} in reported
    assert {**base, "verb": "APPLY", "dry_run": "", "scope": "resource", "code": "200"} in reported
    health = {
        "group": "",
        "version": "",
        "resource": "",
        "subresource": "/livez",
        "component": "apiserver",
        "scope": "",
    }
    assert {**health, "verb": "GET", "dry_run": "", "code": "200"} in reported
    assert {**base, "verb": "LIST", "scope": "namespace"} in samples(text, "apiserver_response_sizes_count")
    assert {**base, "verb": "LIST", "scope": "namespace"} in samples(
        text, "apiserver_request_sli_duration_seconds_count"
    )


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("apiserver_current_inflight_requests", {"request_kind": "readOnly"}),
        ("apiserver_storage_objects", {"resource": "clusterroles.rbac.authorization.k8s.io"}),
        ("apiserver_resource_objects", {"group": "", "resource": "namespaces"}),
        ("apiserver_storage_size_bytes", {"storage_cluster_id": "sqlite"}),
        ("etcd_request_duration_seconds_count", {"operation": "create", "group": "", "resource": "configmaps"}),
        ("etcd_requests_total", {"operation": "list"}),
        ("authentication_attempts_total", {"result": "success"}),
        ("authentication_duration_seconds_count", {"result": "success"}),
        ("authenticated_user_requests_total", {"username": "other"}),
        ("authorization_attempts_total", {"result": "allowed"}),
        ("authorization_duration_seconds_count", {"result": "allowed"}),
        ("apiserver_authorization_decisions_total", {"type": "RBAC", "name": "rbac", "decision": "allowed"}),
        (
            "apiserver_admission_controller_admission_duration_seconds_count",
            {"name": "NamespaceLifecycle", "operation": "CREATE", "rejected": "false", "type": "admit"},
        ),
        ("apiserver_admission_step_admission_duration_seconds_count", {"operation": "CREATE", "type": "validate"}),
        (
            "apiserver_flowcontrol_dispatched_requests_total",
            {"flow_schema": "system-nodes", "priority_level": "system"},
        ),
        ("workqueue_adds_total", {"name": "serviceaccount"}),
        ("workqueue_depth", {}),
        ("workqueue_queue_duration_seconds_count", {}),
        ("workqueue_work_duration_seconds_count", {}),
        ("workqueue_longest_running_processor_seconds", {}),
        ("apiserver_watch_events_total", {"group": "", "version": "v1", "resource": "serviceaccounts"}),
        ("kubernetes_build_info", {"major": "1", "minor": "36"}),
        ("process_resident_memory_bytes", {}),
        ("process_start_time_seconds", {}),
    ],
)
async def test_metrics_have_upstreams_names_and_labels(api: ApiUnderTest, name: str, labels: dict[str, str]) -> None:
    await api.request("POST", CONFIGMAPS, {"metadata": {"name": "more"}})
    await api.request("GET", "/version", user=("jane", ()))
    await api.request("GET", "/api/v1/namespaces/default/services", user=("system:node:n", ("system:nodes",)))
    async with asyncio.timeout(30):
        while True:  # controllers work when they have something to do
            reported = samples(await metrics(api), name)
            if any(labels.items() <= each.items() for each in reported):
                return
            await asyncio.sleep(0.05)


async def test_health_checks_have_metrics(api: ApiUnderTest) -> None:
    text = await metrics(api, "/metrics/slis")
    assert 'kubernetes_healthcheck{name="etcd",type="readyz"} 1' in text
    assert {"name": "ping", "type": "livez", "status": "success"} in samples(text, "kubernetes_healthchecks_total")


async def test_what_cannot_be_excluded_is_named(api: ApiUnderTest) -> None:
    answer = await api.request("GET", "/readyz?verbose&exclude=etcd&exclude=nothing")
    text = answer.body.decode()
    assert answer.status == 200 and "[+]etcd excluded: ok\n" in text
    assert 'warn: some health checks cannot be excluded: no matches for "nothing"\n' in text


async def test_a_request_takes_no_longer_than_its_timeout(api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    create = creation.create

    async def hangs(registry: Registry, *arguments: Any, **more: Any) -> Any:
        if any(isinstance(each, dict) and each.get("metadata", {}).get("name") == "late" for each in arguments):
            await asyncio.sleep(60)
        return await create(registry, *arguments, **more)  # what the server and its controllers make goes on

    assert (await api.request("GET", f"{CONFIGMAPS}?timeout=10s")).status == 200
    bad = await api.request("GET", f"{CONFIGMAPS}?timeout=soon")
    assert bad.status == 400
    assert bad.json["message"] == 'invalid timeout specified in the request URL: time: invalid duration "soon"'
    monkeypatch.setattr(creation, "create", hangs)
    answer = await api.request("POST", f"{CONFIGMAPS}?timeout=50ms", {"metadata": {"name": "late"}})
    assert (answer.status, answer.json["reason"], answer.json["code"]) == (504, "Timeout", 504)


async def test_bodies_and_objects_have_a_largest_size(api: ApiUnderTest) -> None:
    answer = await api.request(
        "POST", CONFIGMAPS, b"{" + b" " * (3 * 1024 * 1024), headers={"Content-Type": "application/json"}
    )
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    large = {"metadata": {"name": "large"}, "data": {"k": "x" * (1000 * 1024)}}
    assert (await api.request("POST", CONFIGMAPS, large)).status == 201
    entry = {"port": 1, "name": "p"}
    addresses = [{"ip": f"10.{n >> 8 & 255}.{n & 255}.1", "hostname": "h" * 60} for n in range(20_000)]
    endpoints = {"metadata": {"name": "many"}, "subsets": [{"addresses": addresses, "ports": [entry]}]}
    answer = await api.request("POST", "/api/v1/namespaces/default/endpoints", endpoints)
    assert (answer.status, answer.json["message"]) == (500, "etcdserver: request is too large"), "upstream's answer"
    assert (await api.request("GET", "/api/v1/namespaces/default/endpoints/many")).status == 404


async def test_the_queues_can_be_looked_at(api: ApiUnderTest) -> None:
    root = "/debug/api_priority_and_fairness"
    assert (await api.request("GET", f"{root}/dump_queues", user=("jane", ()))).status == 403
    assert (await api.request("GET", f"{root}/dump_nothing")).status == 404
    lines = (await metrics(api, f"{root}/dump_priority_levels")).splitlines()
    columns = ["PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests"]
    assert re.split(r",\s*", lines[0]) == columns
    assert any(re.split(r",\s*", line)[:3] == ["workload-low", "0", "true"] for line in lines)
    assert len((await metrics(api, f"{root}/dump_queues")).splitlines()) > 128
    await api.full("global-default")
    api.api.pipeline.fairness.queue_timeout = 60
    waiting = asyncio.ensure_future(api.request("GET", "/version", user=("jane", ())))
    try:
        async with asyncio.timeout(30):
            while len(lines := (await metrics(api, f"{root}/dump_requests?includeRequestDetails=1")).splitlines()) < 2:
                await asyncio.sleep(0.02)
        row = dict(zip(re.split(r",\s*", lines[0]), re.split(r",\s*", lines[1]), strict=True))
        assert row["PriorityLevelName"] == "global-default" and row["FlowSchemaName"] == "global-default"
        assert (row["UserName"], row["Verb"], row["APIPath"]) == ("jane", "get", "/version")
        inqueue = {"flow_schema": "global-default", "priority_level": "global-default"}
        assert inqueue in samples(await metrics(api), "apiserver_flowcontrol_current_inqueue_requests")
    finally:
        api.roomy("global-default")
        api.api.pipeline.fairness.levels["global-default"].dispatch()
        await waiting
    waited = samples(await metrics(api), "apiserver_flowcontrol_request_wait_duration_seconds_count")
    assert {**inqueue, "execute": "true"} in waited


async def test_a_stopping_server_reports_not_ready_first_and_serves_for_a_while(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        config = server.api.config
        context = server.tls(*ADMIN)
    (port,) = reserve()
    config = msgspec.structs.replace(config, port=port, shutdown_delay=3600.0)
    ready, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.ensure_future(run(config, ready=ready.set, stop=stop))
    url = f"https://127.0.0.1:{port}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        async with asyncio.timeout(60):
            await ready.wait()
            async with session.get(f"{url}/readyz") as answer:
                assert answer.status == 200
            stop.set()
            while True:
                async with session.get(f"{url}/readyz") as answer:
                    if answer.status == 500:
                        assert "[-]shutdown failed: reason withheld" in await answer.text()
                        break
            async with session.get(f"{url}/livez") as answer:
                assert answer.status == 200
            async with session.get(url + CONFIGMAPS) as answer:
                assert answer.status == 200, "others may still come until balancers have heard of it"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_who_runs_the_controllers_holds_their_lease(api: ApiUnderTest) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
    async with asyncio.timeout(30):
        while (answer := await api.request("GET", path)).status == 404:
            await asyncio.sleep(0.05)
    holder = answer.json["spec"]["holderIdentity"]
    assert "_" in holder and answer.json["spec"]["leaseDurationSeconds"] == 15


async def test_component_statuses_report_health(api: ApiUnderTest) -> None:
    found = (await api.request("GET", "/api/v1/componentstatuses")).json["items"]
    assert [item["metadata"]["name"] for item in found] == ["controller-manager", "etcd-0", "scheduler"]
    one = (await api.request("GET", "/api/v1/componentstatuses/etcd-0")).json
    assert one["conditions"] == [{"type": "Healthy", "status": "True", "message": "ok"}]
    assert (await api.request("GET", "/api/v1/componentstatuses/nobody")).status == 404


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1"])
async def test_a_schema_that_a_client_has_is_not_sent_again(api: ApiUnderTest, path: str) -> None:
    first = await api.request("GET", path)
    assert first.status == 200 and first.body
    again = await api.request("GET", path, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
