"""Probes, and what follows from them: endpoints, restarts, events."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import WEB_IMAGE, Cluster, eventually
from tests.support.host import ADDRESS
from tests.support.kube import condition, events, is_ready
from tests.support.pods import FOR_EVER, apply, container, execute, pod, status_of, wait_running

GRPC_PORT = 18190
# Answers grpc.health.v1.Health/Check by what a file says: field 1 of the answer is 1 for SERVING, 2 for NOT_SERVING.
GRPC_SERVER = """
import sys, time
from concurrent import futures
import grpc
port, path = sys.argv[1:]
def check(request, context):
    if request not in (b"", b"\\x0a\\x03web"):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
    return b"\\x08\\x01" if open(path).read().strip() == "good" else b"\\x08\\x02"
handler = grpc.method_handlers_generic_handler(
    "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)})
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers([handler])
assert server.add_insecure_port("0.0.0.0:" + port)
server.start()
print("serving", flush=True)
time.sleep(3600)
"""


def probe(period: int = 1, failures: int = 1, **more: Any) -> dict[str, Any]:
    return {"periodSeconds": period, "failureThreshold": failures, **more}


def file_probe(path: str = "/tmp/good", **more: Any) -> dict[str, Any]:
    return probe(exec={"command": ["cat", path]}, **more)


def messages(cluster: Cluster, ns: str, name: str, reason: str) -> list[str]:
    return [e["message"] for e in events(cluster, ns, name) if e["reason"] == reason]


def test_readiness_takes_a_pod_out_of_its_service_and_puts_it_back(shared: Cluster, ns: str) -> None:
    script = f"touch /tmp/good; mkdir /www; hostname > /www/index.html; httpd -p 80 -h /www; {FOR_EVER}"
    for name in ("one", "two"):
        apply(shared, ns, pod(name, container(script, readinessProbe=file_probe()), labels={"app": "web"}))
    shared.kubectl("create", "service", "clusterip", "web", "--tcp=80", "-n", ns)
    wait_running(shared, ns, "one", "two")
    address = shared.get("service", "web", "-n", ns)["spec"]["clusterIP"]

    def answers(wanted: set[str]) -> bool:
        found = {shared.http(address, timeout=1) for _ in range(12)}
        assert found == wanted, found
        return True

    eventually(lambda: answers({"one", "two"}), "both answer")
    execute(shared, ns, "one", "rm /tmp/good")
    eventually(lambda: answers({"two"}), "only the ready one answers")
    found = shared.get("pod", "one", "-n", ns)
    assert (found["status"]["phase"], is_ready(found)) == ("Running", False)
    ready = condition(found, "Ready")
    assert (ready["reason"], ready["message"]) == ("ContainersNotReady", "containers with unready status: [c]")
    assert re.search(r"^one +0/1 +Running +0 ", shared.kubectl("get", "pods", "-n", ns).stdout, re.M)
    slices = shared.get("endpointslices", "-n", ns, "-l", "kubernetes.io/service-name=web")["items"]
    states = {e["targetRef"]["name"]: e["conditions"] for s in slices for e in s["endpoints"]}
    assert {name: c["ready"] for name, c in states.items()} == {"one": False, "two": True}

    def listed() -> bool:
        endpoints = shared.get("endpoints", "web", "-n", ns)["subsets"][0]
        return [a["targetRef"]["name"] for a in endpoints["notReadyAddresses"]] == ["one"]

    eventually(listed, "the Endpoints say which is not ready")
    eventually(
        lambda: (
            "Readiness probe failed: cat: can't open '/tmp/good': No such file or directory"
            in "".join(messages(shared, ns, "one", "Unhealthy"))
        ),
        "the event",
    )
    execute(shared, ns, "one", "touch /tmp/good")
    eventually(lambda: answers({"one", "two"}), "both answer again")
    assert status_of(shared, ns, "one")["restartCount"] == 0


def test_a_liveness_failure_restarts_a_container_and_emits_an_event(shared: Cluster, ns: str) -> None:
    http: dict[str, Any] = {
        "httpGet": {"path": "/cgi-bin/who", "port": "http", "httpHeaders": [{"name": "X-Who", "value": "me"}]}
    }
    web = {
        "name": "web",
        "image": WEB_IMAGE,
        "ports": [{"name": "http", "containerPort": 80}],
        "livenessProbe": probe(failures=2, initialDelaySeconds=1, **http),
    }
    quick: dict[str, Any] = {"terminationGracePeriodSeconds": 1}
    apply(
        shared,
        ns,
        pod("http", web),
        pod("exec", container(f"touch /tmp/good; {FOR_EVER}", livenessProbe=file_probe(**quick))),
        pod(
            "tcp",
            container(
                f"httpd -f -p 80 & echo $! > /pid; {FOR_EVER}",
                livenessProbe=probe(initialDelaySeconds=1, tcpSocket={"port": 80}),
            ),
        ),
    )
    wait_running(shared, ns, "http", "exec", "tcp")
    shared.kubectl("exec", "http", "-n", ns, "--", "rm", "/tmp/www/cgi-bin/who")
    execute(shared, ns, "exec", "rm /tmp/good")
    execute(shared, ns, "tcp", "kill $(cat /pid)")
    for name, which, reported in (
        ("http", "web", "Liveness probe failed: HTTP probe failed with statuscode: 404"),
        ("exec", "c", "Liveness probe failed: cat: can't open '/tmp/good': No such file or directory"),
        ("tcp", "c", r"Liveness probe failed: dial tcp [\d.]+:80: connect: connection refused$"),
    ):
        eventually(lambda n=name, w=which: status_of(shared, ns, n, w)["restartCount"] >= 1, f"{name} restarts")  # type: ignore[misc]

        def is_reported(name: str = name, which: str = which, reported: str = reported) -> bool:
            unhealthy = messages(shared, ns, name, "Unhealthy")
            assert any(re.match(reported, message) for message in unhealthy), unhealthy
            killing = messages(shared, ns, name, "Killing")
            return f"Container {which} failed liveness probe, will be restarted" in killing

        eventually(is_reported, f"the events tell why {name} is restarted")


def test_a_startup_probe_holds_the_others(shared: Cluster, ns: str) -> None:
    # Liveness fails from the first moment on; it may not count before the start is over.
    slow = container(
        startupProbe=file_probe("/tmp/started", failures=600),
        livenessProbe=file_probe("/tmp/good"),
        readinessProbe=file_probe("/tmp/good"),
    )
    never = container(startupProbe=file_probe("/tmp/started", failures=2))
    apply(shared, ns, pod("slow", slow), pod("never", never))

    def tried() -> bool:
        return any(m.startswith("Startup probe failed: ") for m in messages(shared, ns, "slow", "Unhealthy"))

    eventually(tried, "the startup probe fails")
    eventually(lambda: status_of(shared, ns, "never")["restartCount"] >= 1, "who never starts is restarted")
    eventually(
        lambda: "Container c failed startup probe, will be restarted" in messages(shared, ns, "never", "Killing"),
        "the event tells why",
    )
    status = status_of(shared, ns, "slow")
    assert (status["started"], status["ready"], status["restartCount"]) == (False, False, 0)
    assert not [m for m in messages(shared, ns, "slow", "Unhealthy") if not m.startswith("Startup")]
    execute(shared, ns, "slow", "touch /tmp/good /tmp/started")
    wait_running(shared, ns, "slow")
    assert status_of(shared, ns, "slow")["started"] is True
    assert status_of(shared, ns, "slow")["restartCount"] == 0


@pytest.fixture
def health(shared: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A gRPC health server on the node's address; the file says whether it is "good"."""
    state = tmp_path / "state"
    state.write_text("bad")
    process = shared.host.popen(sys.executable, "-c", GRPC_SERVER, str(GRPC_PORT), str(state))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield state
    finally:
        process.kill()
        process.wait()


def test_a_grpc_probe_calls_the_health_service(shared: Cluster, ns: str, health: Path) -> None:
    asks: dict[str, Any] = {"grpc": {"port": GRPC_PORT, "service": "web"}}
    unknown: dict[str, Any] = {"grpc": {"port": GRPC_PORT, "service": "other"}}
    apply(
        shared,
        ns,
        pod("known", container(readinessProbe=probe(**asks)), hostNetwork=True),
        pod("unknown", container(readinessProbe=probe(**unknown)), hostNetwork=True),
    )
    eventually(
        lambda: any("NOT_SERVING" in m for m in messages(shared, ns, "known", "Unhealthy")), "it is not serving yet"
    )
    assert shared.get("pod", "known", "-n", ns)["status"]["podIP"] == ADDRESS
    assert not is_ready(shared.get("pod", "known", "-n", ns))
    health.write_text("good")
    wait_running(shared, ns, "known")
    health.write_text("bad")
    eventually(lambda: not is_ready(shared.get("pod", "known", "-n", ns)), "it is taken out again")
    assert not is_ready(shared.get("pod", "unknown", "-n", ns))


def test_a_probe_that_hangs_times_out(shared: Cluster, ns: str) -> None:
    hangs = probe(exec={"command": ["sleep", "60"]}, timeoutSeconds=1)
    apply(shared, ns, pod("hangs", container(readinessProbe=hangs)))

    def reported() -> bool:
        found = messages(shared, ns, "hangs", "Unhealthy")
        assert any("timed out" in m for m in found), found
        return True

    eventually(reported, "the time-out's event")
    assert not is_ready(shared.get("pod", "hangs", "-n", ns))
