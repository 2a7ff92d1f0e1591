"""Spans of the API server, the scheduler and the agent, as an OpenTelemetry collector receives them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.kubelet_configuration import KubeletConfiguration
from cri.fake import FakeRuntime
from kube import pki_layout
from kube.process import run
from kube.tracing.configuration import MILLION, TracingConfiguration
from tests.support.collector import Collector, collector
from tests.support.control import ADMIN, api_server
from tests.support.node import agent_node
from tests.support.webhook import webhook

IMAGE = "registry.example/web:1"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
ALICE = ("alice", ("developers",))
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RUNTIME, IMAGES = "runtime.v1.RuntimeService/", "runtime.v1.ImageService/"


@pytest.fixture(autouse=True)
def quick_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


@pytest.fixture
async def sink() -> AsyncIterator[Collector]:
    async with collector() as found:
        yield found


def traced(sink: Collector, rate: int = MILLION) -> TracingConfiguration:
    return TracingConfiguration(sink.endpoint, rate)


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "a secret word"}}


async def test_one_create_leads_to_the_containers_start(sink: Collector, tmp_path: Path) -> None:
    file = KubeletConfiguration(tracing=traced(sink))
    async with (
        FakeRuntime(tmp_path / "runtime.sock") as runtime,
        api_server(tmp_path / "control", tracing=traced(sink), enable_scheduler=True) as api,
        agent_node(tmp_path, runtime, api, file=file),
    ):
        runtime.images.publish(IMAGE)
        spec = {
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],  # no controllers remove the new node's taint
            "containers": [{"name": "main", "image": IMAGE, "command": ["cat"]}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
        pods = "/api/v1/namespaces/default/pods"
        created = await api.request("POST", pods, pod)
        assert created.status == 201
        trace = created.json["metadata"]["uid"].replace("-", "")
        await sink.wait(lambda: any(s.name.endswith("StartContainer") for s in sink.trace(trace)), "no container")
        await sink.wait(lambda: any(s.name == "syncPod" for s in sink.trace(trace)), "no sync")
        await sink.wait(
            lambda: any(s.name == "POST /api/v1/namespaces/{:namespace}/pods" for s in sink.spans), "no request"
        )
    found = sink.trace(trace)
    by_id, by_name = {span.span_id: span for span in found}, {span.name: span for span in found}
    (root,) = [span for span in found if not span.parent_id]
    assert root.name == "create pod" and root.span_id == trace[:16]
    assert {span.name for span in found if span.parent_id not in by_id} == {"create pod"}, "one tree"
    parents = {name: by_id[by_name[name].parent_id].name for name in by_name if name != "create pod"}
    binding = "POST /api/v1/namespaces/{:namespace}/pods/{:name}/binding"
    expected = {"schedule pod": "create pod", "bind pod": "schedule pod", binding: "bind pod", "syncPod": "create pod"}
    calls = (f"{RUNTIME}RunPodSandbox", f"{IMAGES}PullImage", f"{RUNTIME}CreateContainer", f"{RUNTIME}StartContainer")
    assert parents.items() >= (expected | dict.fromkeys(calls, "syncPod")).items()
    steps = [by_name[name].start for name in ("create pod", "schedule pod", "bind pod", *calls)]
    assert steps == sorted(steps), "each step begins after the one that causes it"
    assert by_name["schedule pod"].attributes["k8s.node.name"] == "node-1"
    stored = root.attributes["k8s.pod.resource_version"]
    assert (
        by_name["schedule pod"].attributes["k8s.pod.resource_version"]
        == stored
        == created.json["metadata"]["resourceVersion"]
    )
    assert by_name["syncPod"].attributes["k8s.pod"] == "default/web"
    assert by_name["syncPod"].resource["service.name"] == "kubelet"
    assert root.resource["service.name"] == "apiserver"
    (request,) = [span for span in sink.spans if (trace, root.span_id) in span.links and span.kind == 2]
    assert root.links == [(request.trace_id, request.span_id)] and request.trace_id != trace
    assert request.name == "POST /api/v1/namespaces/{:namespace}/pods"
    assert request.attributes["audit-id"] == created.headers["Audit-Id"]
    inner = {span.name for span in sink.trace(request.trace_id)}
    assert inner >= {"authorization", "Create", "Create etcd3"}
    (stored_span,) = [span for span in sink.trace(request.trace_id) if span.name == "Create etcd3"]
    assert str(stored_span.attributes["revision"]) == stored
    for rpc in ("RunPodSandbox", "PullImage", "CreateContainer", "StartContainer"):
        assert str(runtime.metadata[rpc]["traceparent"]).startswith(f"00-{trace}-"), "the runtime continues the trace"


async def test_only_privileged_clients_decide_that_their_trace_is_recorded(sink: Collector, tmp_path: Path) -> None:
    async with api_server(tmp_path, tracing=traced(sink, 0)) as api:
        for user, header, name in (
            (ALICE, SAMPLED, "a"),
            (ADMIN, UNSAMPLED, "b"),
            (ADMIN, "", "c"),
            (ADMIN, SAMPLED, "d"),
        ):
            await api.request(
                "POST", CONFIG_MAPS, config_map(name), user=user, headers={"traceparent": header} if header else {}
            )
        monitoring = ("prometheus", ("system:monitoring",))
        assert (await api.request("GET", "/metrics", user=monitoring, headers={"traceparent": SAMPLED})).status == 200
        await sink.wait(lambda: len([s for s in sink.spans if s.kind == 2]) == 2, "two requests are recorded")
    assert {span.trace_id for span in sink.spans} == {TRACE}
    assert sorted(s.name for s in sink.spans if s.parent_id == SPAN) == [
        "GET",
        "POST /api/v1/namespaces/{:namespace}/configmaps",
    ]


async def test_another_clients_trace_becomes_a_link(sink: Collector, tmp_path: Path) -> None:
    async with api_server(tmp_path, tracing=traced(sink)) as api:
        answer = await api.request(
            "GET", CONFIG_MAPS, user=ALICE, headers={"traceparent": UNSAMPLED, "User-Agent": "u" * 2000}
        )
        assert answer.status == 403
        await sink.wait(lambda: sink.named("GET /api/v1/namespaces/{:namespace}/configmaps"), "no span")
    (span,) = sink.named("GET /api/v1/namespaces/{:namespace}/configmaps")
    assert span.trace_id != TRACE and not span.parent_id and span.links == [(TRACE, SPAN)]
    assert span.attributes["http.response.status_code"] == 403
    assert len(span.attributes["user_agent.original"]) == 256


async def test_spans_contain_no_bodies_queries_or_headers(sink: Collector, tmp_path: Path) -> None:
    async with api_server(tmp_path, tracing=traced(sink)) as api:
        headers = {"Authorization": "Bearer not-for-others", "Cookie": "not-for-others"}
        await api.request("POST", CONFIG_MAPS + "?fieldManager=not-for-others", config_map("a"), headers=headers)
        await sink.wait(lambda: sink.named("Create etcd3"), "no span")
    text = repr(sink.spans)
    assert "not-for-others" not in text and "secret word" not in text


async def test_webhooks_continue_the_trace(sink: Collector, tmp_path: Path) -> None:
    async with webhook(tmp_path / "hook") as hook, api_server(tmp_path / "control", tracing=traced(sink)) as api:
        hook.answers["/check"] = lambda request: {"allowed": True}
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
        made = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "checks"},
            "webhooks": [
                {
                    "name": "check.example.com",
                    "clientConfig": hook.client("/check"),
                    "rules": [rule],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        assert (await api.request("POST", path, made)).status == 201
        for number in range(100):
            answer = await api.request("POST", CONFIG_MAPS, config_map(f"a-{number}"), headers={"traceparent": SAMPLED})
            assert answer.status == 201
            if hook.received:
                break
            await asyncio.sleep(0.02)
        await sink.wait(lambda: sink.named("Call validating webhook"), "no span")
    (span,) = sink.named("Call validating webhook")
    assert span.attributes["webhook"] == "check.example.com" and span.attributes["configuration"] == "checks"
    assert hook.headers[0]["traceparent"] == f"00-{TRACE}-{span.span_id}-01"


@pytest.mark.parametrize("state", ["absent", "hanging", "slow"])
async def test_a_collector_delays_nobody(
    sink: Collector, tmp_path: Path, state: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.tracing.otlp.SEND_SECONDS", 0.5)
    monkeypatch.setattr("kube.tracing.otlp.CLOSE_SECONDS", 0.2)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setattr("kube.tracing.otlp.messages.overflowed", False)
    for logger in ("sdk._shared_internal", "exporter.otlp.proto.grpc.exporter"):
        for each in logging.getLogger(f"opentelemetry.{logger}").filters:
            vars(each).pop("last_log", None)  # the SDK logs a message again after twenty seconds only
    sink.delay = {"absent": 0.0, "hanging": 3600.0, "slow": 0.2}[state]
    endpoint = "127.0.0.1:1" if state == "absent" else sink.endpoint
    caplog.set_level(logging.INFO)
    async with api_server(tmp_path, tracing=TracingConfiguration(endpoint, MILLION)) as api:
        for number in range(30):
            assert (await api.request("POST", CONFIG_MAPS, config_map(f"a-{number}"))).status == 201
        words = "accepts fewer than" if state == "slow" else "does not accept them"
        await sink.wait(lambda: words in caplog.text, "the log says that spans are dropped")
        for number in range(30, 60):
            assert (await api.request("POST", CONFIG_MAPS, config_map(f"a-{number}"))).status == 201
    assert caplog.text.count("does not accept them") <= 1
    assert caplog.text.count("accepts fewer than") <= 1


ROOT = Path(__file__).resolve().parents[2]


async def test_no_role_imports_the_sdk_without_a_configuration() -> None:
    """Memory and time are taken only by a role with a configuration."""
    modules = (
        "agent.main, control.assembly.api_server, control.scheduler.main, control.controllers.manager, kube.tracing.start, "
        "control.assembly.tracing, agent.pods.sync_spans, agent.cri_spans, control.server.request_spans"
    )
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {modules}; print(*sorted(sys.modules))"
    loaded = (await run([sys.executable, "-c", code], timeout=60)).stdout.split()
    assert "kube.tracing.spans" in loaded and "kube.tracing.otlp" not in loaded
    assert not [name for name in loaded if name.startswith("opentelemetry")]


async def test_an_invalid_file_stops_the_server_with_one_sentence(tmp_path: Path) -> None:
    keys = tmp_path / "pki"
    await asyncio.to_thread(pki_layout.ensure, keys, now=datetime.now(UTC), hosts=("127.0.0.1",))
    file = tmp_path / "tracing.yaml"
    file.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 2000000\n"
    )
    flags = {
        "tls-cert-file": keys / "apiserver.crt",
        "tls-private-key-file": keys / "apiserver.key",
        "client-ca-file": keys / "ca.crt",
        "service-account-signing-key-file": keys / "sa.key",
        "data-dir": tmp_path / "data",
        "secure-port": 0,
        "bind-address": "127.0.0.1",
        "tracing-config-file": file,
    }
    command = [
        sys.executable,
        "-m",
        "control",
        "kube-apiserver",
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    ended = await run(command, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "Error: failed to validate tracing configuration: samplingRatePerMillion: Invalid value: 2000000: "
        "sampling rate per million must be less than or equal to one million"
    )
