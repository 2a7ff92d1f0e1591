"""Ports of the controllers and the scheduler in one process: open health, and metrics for clients with permission."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.control import Answer, ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
PODS = "/api/v1/namespaces/default/pods"
READER = ("reader", ())
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Ports:
    """A control plane with both ports."""

    def __init__(self, api: ApiUnderTest, manager: int, scheduler: int) -> None:
        self.api, self.manager, self.scheduler = api, manager, scheduler

    async def get(
        self,
        port: int,
        path: str,
        user: tuple[str, tuple[str, ...]] | None = None,
        token: str = "",
        method: str = "GET",
    ) -> Answer:
        """Send a request with a user's certificate, with a token, or with neither."""
        tls = self.api.tls(*(user or ("", ())))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            async with session.request(method, f"https://127.0.0.1:{port}{path}", headers=headers) as answer:
                return Answer(answer.status, answer.headers, await answer.read())

    async def text(self, port: int, path: str = "/metrics") -> str:
        answer = await self.get(port, path, READER)
        assert answer.status == 200, answer.body
        return answer.body.decode()

    async def eventually(self, port: int, pattern: str) -> str:
        """Return the metrics once a line matches."""
        async with asyncio.timeout(60):
            while not re.search(pattern, text := await self.text(port), re.M):
                await asyncio.sleep(0.1)
        return text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ports]:
    manager, scheduler = free_port(), free_port()
    directory: Path = tmp_path_factory.mktemp("ports")
    async with api_server(
        directory,
        enable_controllers=True,
        enable_scheduler=True,
        controller_manager_port=manager,
        scheduler_port=scheduler,
    ) as api:
        found = Ports(api, manager, scheduler)
        rule = {"nonResourceURLs": ["/metrics", "/metrics/*", "/configz"], "verbs": ["get"]}
        role = {"metadata": {"name": "reader"}, "rules": [rule]}
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": "reader"}],
        }
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        assert (await api.request("POST", f"{rbac}/clusterroles", role)).status == 201
        assert (await api.request("POST", f"{rbac}/clusterrolebindings", binding)).status == 201
        async with asyncio.timeout(60):
            for port in (manager, scheduler):
                while True:
                    try:
                        if (await found.get(port, "/metrics", READER)).status == 200:
                            break
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(0.2)
        yield found


@pytest.fixture(params=["manager", "scheduler"])
def port(ports: Ports, request: pytest.FixtureRequest) -> int:
    return int(getattr(ports, request.param))


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/healthz?verbose"])
async def test_health_is_open_to_everybody(ports: Ports, port: int, path: str) -> None:
    answer = await ports.get(port, path)
    assert answer.status == 200 and b"ok" in answer.body


async def test_a_single_check_needs_permission(ports: Ports, port: int) -> None:
    """Upstream's open paths are exact unless they end with a star."""
    assert (await ports.get(port, "/healthz/ping")).status == 403
    assert (await ports.get(port, "/healthz/ping", ("root", ("system:masters",)))).body == b"ok"


async def test_anonymous_clients_are_forbidden_to_read_metrics(ports: Ports, port: int) -> None:
    answer = await ports.get(port, "/metrics")
    status = answer.json
    assert (answer.status, status["kind"], status["reason"], status["code"]) == (403, "Status", "Forbidden", 403)
    assert status["message"] == 'forbidden: User "system:anonymous" cannot get path "/metrics"'


async def test_an_unknown_token_is_unauthorized(ports: Ports, port: int) -> None:
    answer = await ports.get(port, "/metrics", token="nobody's")
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")


async def test_a_known_user_needs_permission(ports: Ports, port: int) -> None:
    assert (await ports.get(port, "/metrics", ("jane", ()))).status == 403
    assert (await ports.get(port, "/metrics", READER)).status == 200
    assert (await ports.get(port, "/metrics", ("root", ("system:masters",)))).status == 200
    assert (await ports.get(port, "/metrics", READER, method="POST")).status == 403
    assert (await ports.get(port, "/metrics", ("root", ("system:masters",)), method="POST")).status == 405
    assert (await ports.get(port, "/nothing", ("root", ("system:masters",)))).status == 404


async def test_a_service_accounts_token_is_reviewed(ports: Ports, port: int) -> None:
    api = ports.api
    name, groups = "system:kube-controller-manager", ()
    async with asyncio.timeout(60):
        while (await api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")).status != 200:
            await asyncio.sleep(0.1)
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    made = (await api.request("POST", path, {"spec": {}}, user=(name, (*groups, "system:masters")))).json
    answer = await ports.get(port, "/metrics", token=made["status"]["token"])
    assert answer.status == 403
    assert 'User "system:serviceaccount:default:default" cannot get path' in answer.json["message"]


async def test_the_configuration_is_shown(ports: Ports) -> None:
    manager, scheduler = [(await ports.text(port, "/configz")) for port in (ports.manager, ports.scheduler)]
    assert json.loads(manager) == {"kubecontrollermanager.config.k8s.io": {}}
    assert json.loads(scheduler) == {"kubescheduler.config.k8s.io": {}}


async def test_both_have_metrics_of_health_version_and_leadership(ports: Ports, port: int) -> None:
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1' in await ports.text(port, "/metrics/slis")
    text = await ports.eventually(port, "^leader_election_master_status{.*} 1$")
    assert len(re.findall("^leader_election_master_status{", text, re.M)) == 1
    assert "kubernetes_build_info{" in text and "process_resident_memory_bytes " in text
    assert "apiserver_request_total" not in text and not re.search(r"_created[{ ]", text)


async def test_metrics_of_the_scheduler(ports: Ports) -> None:
    await make_node(ports.api, "n")
    await create_pod(ports.api, "fits")
    await create_pod(ports.api, "large", requests={"cpu": "100"})
    counted = [
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} [1-9]',
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} [1-9]',
        'scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="scheduled"} [1-9]',
        'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} [1-9]',
        "scheduler_pod_scheduling_attempts_count [1-9]",
        'scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"} [1-9]',
        'scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} [1-9]',
        'scheduler_pending_pods{queue="unschedulable"} 1',
        'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"} 1',
        'scheduler_scheduler_cache_size{type="nodes"} 1',
        "scheduler_preemption_attempts_total [1-9]",
        *(
            f'scheduler_framework_extension_point_duration_seconds_count{{extension_point="{point}",'
            f'profile="default-scheduler",status="Success"}} [1-9]'
            for point in ("PreFilter", "Filter", "Reserve", "Bind")
        ),
    ]
    for line in counted:
        await ports.eventually(ports.scheduler, "^" + line.replace("{", r"\{"))
    text = await ports.text(ports.scheduler)
    assert "workqueue_" not in text and "job_controller_" not in text
    resources = await ports.text(ports.scheduler, "/metrics/resources")
    assert (
        'kube_pod_resource_request{namespace="default",node="n",pod="fits",priority="0",resource="cpu",'
        'scheduler="default-scheduler",unit="cores"} 0.1\n'
    ) in resources


async def test_metrics_of_the_controllers(ports: Ports) -> None:
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}
    path = "/apis/batch/v1/namespaces/default/jobs"
    async with asyncio.timeout(60):
        while (await ports.api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")).status != 200:
            await asyncio.sleep(0.1)
    assert (await ports.api.request("POST", path, job)).status == 201
    syncs = (
        'job_controller_job_syncs_total\\{action="pods_created",completion_mode="NonIndexed",result="success"\\} [1-9]'
    )
    await ports.eventually(ports.manager, f"^{syncs}")
    async with asyncio.timeout(60):
        while not (found := (await ports.api.request("GET", f"{PODS}?labelSelector=job-name=j")).json["items"]):
            await asyncio.sleep(0.1)
    pod = f"{PODS}/{found[0]['metadata']['name']}/status"
    patch = {"Content-Type": "application/merge-patch+json"}
    await ports.api.request("PATCH", pod, {"status": {"phase": "Succeeded"}}, headers=patch)
    for line in (
        'job_controller_jobs_finished_total{completion_mode="NonIndexed",reason="CompletionsReached",result="succeeded"} 1',
        'job_controller_job_pods_finished_total{completion_mode="NonIndexed",result="succeeded"} 1',
        'job_controller_terminated_pods_tracking_finalizer_total{event="add"} 1',
        'job_controller_terminated_pods_tracking_finalizer_total{event="delete"} 1',
        'workqueue_adds_total{name="serviceaccount"} [1-9]',
        'workqueue_depth{name="garbage_collector_attempt_to_delete"} [0-9]',
        'workqueue_work_duration_seconds_bucket{name="job",le="1e-08"} [0-9]',
        'root_ca_cert_publisher_sync_total{code="200"} [1-9]',
    ):
        await ports.eventually(ports.manager, "^" + line.replace("{", r"\{"))
    assert "scheduler_" not in await ports.text(ports.manager)


async def test_a_port_that_is_taken_does_not_stop_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        async with api_server(tmp_path, enable_scheduler=True, scheduler_port=taken) as api:
            async with asyncio.timeout(60):
                while f"health and metrics are not served on port {taken}" not in caplog.text:
                    await asyncio.sleep(0.1)
            assert (await api.request("GET", "/readyz")).status == 200


async def make_node(api: ApiUnderTest, name: str) -> None:
    status = {
        "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await api.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    patch = {"Content-Type": "application/merge-patch+json"}
    path = f"/api/v1/nodes/{name}"
    assert (await api.request("PATCH", f"{path}/status", {"status": status}, headers=patch)).status == 200
    assert (await api.request("PATCH", path, {"spec": {"taints": None}}, headers=patch)).status == 200


async def create_pod(api: ApiUnderTest, name: str, requests: dict[str, Any] | None = None) -> None:
    container = {**CONTAINER, **({"resources": {"requests": requests}} if requests else {})}
    tolerations = [{"operator": "Exists"}]
    pod = {"metadata": {"name": name}, "spec": {"containers": [container], "tolerations": tolerations}}
    async with asyncio.timeout(60):
        while (await api.request("POST", PODS, pod)).status != 201:
            await asyncio.sleep(0.2)  # until the default service account is there
