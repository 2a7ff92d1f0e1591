"""Pages of the kubelet port of a running agent: its configuration, its own counters, checkpoints."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from agent.kubelet_configuration import KubeletConfiguration
from cri.fake import FakeRuntime
from tests.support.control import ApiUnderTest
from tests.support.fake_node import OPEN, ask, container, create
from tests.support.node import FastClock, NodeUnderTest, agent_node
from tests.support.ports import reserve


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> AsyncIterator[NodeUnderTest]:
    (port,) = reserve()
    changes = {"enable_server": True, "port": port, "access": OPEN}
    file = KubeletConfiguration(max_pods=77, cluster_dns=["10.96.0.10"])
    async with agent_node(tmp_path, runtime, api, clock=clock, file=file, **changes) as node:
        yield node


async def test_the_configuration_is_shown_in_upstreams_names(node: NodeUnderTest) -> None:
    status, text = await ask(node, "/configz")
    found = json.loads(text)["kubeletconfig"]
    assert status == 200
    assert (found["kind"], found["apiVersion"]) == ("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1")
    assert (found["maxPods"], found["clusterDNS"], found["syncFrequency"]) == (77, ["10.96.0.10"], "1m")
    assert found["imageGCHighThresholdPercent"] == 85 and found["evictionHard"]["memory.available"] == "100Mi"
    assert found["authentication"]["webhook"] == {"enabled": True, "cacheTTL": "2m"}


async def test_the_agents_own_files_have_a_pool_of_their_own(node: NodeUnderTest) -> None:
    # The agent shares the loop of this test, and so its default executor.
    assert (await asyncio.to_thread(lambda: threading.current_thread().name)).startswith("files")
    metrics = (await ask(node, "/metrics"))[1]
    assert 'wherry_loop_running{loop="clock steps"} 1' in metrics
    for name in ("wherry_steps_seconds_total", "wherry_long_steps_seconds_total", "wherry_stopped_steps_total"):
        assert f'{name}{{work="pods"}} ' in metrics
        assert f'{name}{{work="kubelet requests"}} ' in metrics


async def test_calls_to_the_runtime_are_counted(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.failures.fail("RunPodSandbox", "not yet")
    await create(node, "counted")
    await node.ready("counted")
    lines = (await ask(node, "/metrics"))[1].splitlines()
    assert 'kubelet_runtime_operations_total{operation_type="run_podsandbox"} 2' in lines
    assert 'kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1' in lines
    assert 'kubelet_runtime_operations_total{operation_type="create_container"} 1' in lines
    assert 'kubelet_runtime_operations_duration_seconds_count{operation_type="start_container"} 1' in lines
    assert 'kubelet_runtime_operations_duration_seconds_bucket{operation_type="start_container",le="+Inf"} 1' in lines
    assert 'kubelet_started_containers_total{container_type="container"} 1' in lines
    assert not any(line.startswith("kubelet_terminated_containers_total{") for line in lines)
    assert "kubelet_started_pods_total 2" in lines and "kubelet_started_pods_errors_total 1" in lines
    assert 'kubelet_run_podsandbox_errors_total{runtime_handler=""} 1' in lines
    assert "kubelet_pod_start_duration_seconds_count 1" in lines
    assert "kubelet_pod_start_sli_duration_seconds_count 1" in lines
    assert 'kubelet_desired_pods{static=""} 1' in lines
    assert "kubelet_graceful_shutdown_start_time_seconds 0" in lines


async def test_a_pod_of_the_api_is_counted_as_one_whatever_its_annotations(node: NodeUnderTest) -> None:
    body = {"automountServiceAccountToken": False, "containers": [container()]}
    forged = {"kubernetes.io/config.hash": "1", "kubernetes.io/config.source": "file"}
    await node.create("forged", body, annotations=forged)
    await node.ready("forged")
    lines = (await ask(node, "/metrics"))[1].splitlines()
    assert 'kubelet_desired_pods{static=""} 1' in lines and "kubelet_mirror_pods 0" in lines


async def test_a_container_is_written_to_an_archive(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await create(node, "frozen")
    pod = await node.ready("frozen")
    status, text = await ask(node, "/checkpoint/default/frozen/main", "POST")
    assert status == 200
    (location,) = json.loads(text)["items"]
    folder = node.config.root_dir / "checkpoints"
    assert location.startswith(f"{folder}/checkpoint-frozen_default-main-") and location.endswith(".tar")
    assert await asyncio.to_thread(Path(location).read_text) in (pod.status.container_statuses[0].container_id or "")
    assert (await asyncio.to_thread(folder.stat)).st_mode & 0o777 == 0o700
    assert await ask(node, "/checkpoint/default/frozen/none", "POST") == (404, "container none does not exist")
    assert await ask(node, "/checkpoint/default/none/main", "POST") == (404, "pod does not exist")
    for wrong in ("soon", "%C2%B2", "9" * 5000):
        refused = (500, "cannot parse value of timeout parameter")
        assert await ask(node, f"/checkpoint/default/frozen/main?timeout={wrong}", "POST") == refused
    assert (await ask(node, "/checkpoint/default/frozen/main"))[0] == 405
    runtime.failures.fail("CheckpointContainer", "unknown method", grpc.StatusCode.UNIMPLEMENTED)
    status, text = await ask(node, "/checkpoint/default/frozen/main", "POST")
    failed = "checkpointing of default/frozen/main failed (rpc error: code = Unimplemented desc = unknown method)"
    assert (status, text) == (500, failed)


@pytest.mark.parametrize("suites", [(), ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",)], ids=["default", "chosen"])
async def test_the_port_takes_the_cipher_suites_of_the_configuration(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock, suites: tuple[str, ...]
) -> None:
    (port,) = reserve()
    changes = {"enable_server": True, "port": port, "access": OPEN}
    async with agent_node(tmp_path, runtime, api, clock=clock, tls_cipher_suites=suites, **changes) as node:
        assert (await ask(node, "/healthz"))[0] == 200
        spoken = {}
        for suite in ("ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-GCM-SHA384"):
            client = ssl.create_default_context()
            client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
            client.maximum_version = ssl.TLSVersion.TLSv1_2
            client.set_ciphers(suite)
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
                writer.close()
                spoken[suite] = True
            except (ssl.SSLError, ConnectionError):
                spoken[suite] = False
    assert spoken == {"ECDHE-ECDSA-AES128-SHA": bool(suites), "ECDHE-ECDSA-AES256-GCM-SHA384": not suites}
