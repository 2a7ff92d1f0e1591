"""A node's gateway as it runs: its process follows a real API server with its controllers, and curl is the client."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.controllers.gateway import host_claims
from kube.api import core_v1
from kube.client import Client
from kube.errors import StatusError
from kube.gateway import names
from tests.host.netproxy.conftest import NODE_IP, PODS, Site, build_site, until
from tests.support.control import ApiUnderTest, api_server
from tests.support.netns import Namespace
from tests.support.services import node, port, service, slice_of

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: default}
spec:
  gatewayClassName: wherry
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - name: https
    port: 443
    protocol: HTTPS
    hostname: secure.example.com
    tls: {certificateRefs: [{name: secure}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: default}
spec:
  parentRefs: [{name: web}]
  rules:
  - matches: [{path: {value: /a}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
    backendRefs: [{name: pod-a, port: 80}]
  - backendRefs: [{name: pod-b, port: 80}]
"""
INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: default}
spec:
  rules:
  - host: ingress.example.com
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: pod-a, port: {number: 80}}}}]
"""


@pytest.fixture
def site(tmp_path: Path) -> Any:
    with build_site("nft", tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def network_role(
    site: Site, server: ApiUnderTest, mode: str = "iptables"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the network role as its own process, as the user that RBAC lets it be."""
    argv = [sys.executable, "-m", "netproxy", "--kubeconfig", str(server.kubeconfig("system:kube-proxy"))]
    argv += ["--hostname-override", "node-1", "--cluster-cidr", "10.244.0.0/16", "--proxy-mode", mode]
    argv += ["--cni-conf-dir", str(site.folder / "net.d"), "--no-dns", "--no-network-policy"]
    with (site.folder / "netproxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    reported = (site.folder / "netproxy.log").read_text()
    assert "Traceback" not in reported and "forbidden" not in reported, reported[-3000:]


async def prepare(server: ApiUnderTest) -> Client:
    """Create the node and a Service for each pod; return a client of the administrator."""
    admin = server.client()
    made = node("node-1", "10.244.1.0/24", NODE_IP)
    made.status.conditions = [core_v1.NodeCondition(type="Ready", status="True")]
    await admin.create(made)
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(StatusError):
                await admin.get(core_v1.Namespace, "default")
                break
            await asyncio.sleep(0.05)
    for number, (name, address) in enumerate(PODS.items()):
        await admin.create(service(name, f"10.96.5.{number + 1}", port("http", 80)))
        await admin.create(slice_of(name, address))
    return admin


def curl(origin: Namespace, url: str, *options: str) -> str:
    return origin.run("curl", "-s", "-m", "5", *options, url, check=False).strip()


def pids(site: Site) -> list[int]:
    """Return the processes of gateways of this test's network role."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes()
            if b"netproxy.gateway" in line and str(site.folder).encode() in line:
                found.append(int(folder.name))
    return found


async def apply(server: ApiUnderTest, manifest: str) -> None:
    async with asyncio.timeout(60):  # the definitions are being installed
        while True:
            result = await server.kubectl("apply", "-f", "-", input=manifest, check=False)
            if result.returncode == 0:
                return
            await asyncio.sleep(0.5)


def test_gateways_and_ingresses_are_served_on_the_nodes_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_claims, "KEPT_SECONDS", 1.0)

    async def check() -> None:
        options = {"enable_controllers": True, "gateway": True, "service_load_balancer": True}
        async with api_server(site.folder / "control", **options) as server, network_role(site, server) as role:
            admin = await prepare(server)
            assert not pids(site)
            await certificate(site, server)
            await apply(server, GATEWAY)
            await until(lambda: curl(site.client, f"http://{NODE_IP}/a") == "pod-a", "the Gateway answers")
            assert curl(site.client, f"http://{NODE_IP}/") == "pod-b"
            secure = ("--cacert", str(site.folder / "secure.crt"), "--resolve", f"secure.example.com:443:{NODE_IP}")
            assert curl(site.client, "https://secure.example.com/a/", *secure) == "pod-a"
            assert curl(site.client, f"https://{NODE_IP}/", "-k", "-w", "%{http_code}") == "000"

            found = await admin.list(core_v1.Service, names.NAMESPACE)
            cluster_ip = found.items[0].spec.cluster_ip
            assert curl(site.pods["pod-b"], f"http://{cluster_ip}/a") == "pod-a"

            (first,) = pids(site)
            status = await asyncio.to_thread(Path(f"/proc/{first}/status").read_text)
            assert "CapEff:\t0000000000000000\n" in status and "CapBnd:\t0000000000000000\n" in status
            assert "NoNewPrivs:\t1\n" in status
            os.kill(first, signal.SIGKILL)
            await until(lambda: curl(site.client, f"http://{NODE_IP}/a") == "pod-a", "the process is started again")
            assert pids(site) not in ([], [first])

            await server.kubectl("delete", "gateway", "web")
            await apply(server, INGRESS)
            await until(
                lambda: curl(site.client, f"http://{NODE_IP}/", "-H", "Host: ingress.example.com") == "pod-a",
                "the Ingress answers",
            )
            await server.kubectl("delete", "ingress", "web")
            await until(lambda: not pids(site), "the process ends with the last gateway")

            role.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(role.wait(), 30) == 0

    site.node.inside(check)


async def certificate(site: Site, server: ApiUnderTest) -> None:
    """Store a certificate that openssl has made as the Secret `secure`."""
    key, cert = site.folder / "secure.key", site.folder / "secure.crt"
    site.client.run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-keyout", str(key), "-out", str(cert), "-subj", "/CN=secure.example.com"),
        *("-addext", "subjectAltName=DNS:secure.example.com"),
    )
    await server.kubectl("create", "secret", "tls", "secure", f"--cert={cert}", f"--key={key}")


def test_the_gateway_ends_with_the_network_role_even_if_that_is_killed(site: Site) -> None:
    async def check() -> None:
        options = {"enable_controllers": True, "gateway": True, "service_load_balancer": True}
        async with api_server(site.folder / "control", **options) as server, network_role(site, server) as role:
            await prepare(server)
            await apply(server, INGRESS)
            host = ("-H", "Host: ingress.example.com", "-o", "/dev/null", "-w", "%{http_code}")
            await until(lambda: curl(site.client, f"http://{NODE_IP}/", *host) == "200", "the Ingress answers")
            os.kill(role.pid, signal.SIGKILL)
            await until(lambda: not pids(site), "the gateway has ended")

    site.node.inside(check)


@pytest.mark.parametrize(("kind", "mode"), [("gateway", "iptables"), ("ingress", "nftables")])
def test_an_address_that_is_reported_accepts_connections_at_once(site: Site, kind: str, mode: str) -> None:
    async def check() -> None:
        options = {"enable_controllers": True, "gateway": True, "service_load_balancer": True}
        async with api_server(site.folder / "control", **options) as server, network_role(site, server, mode):
            await prepare(server)
            await certificate(site, server)
            await apply(server, GATEWAY if kind == "gateway" else INGRESS)
            async with asyncio.timeout(60):
                while NODE_IP not in await addresses(server, kind):
                    await asyncio.sleep(0)
            target = ("-H", "Host: ingress.example.com", "-o", "/dev/null", "-w", "%{http_code}")
            assert curl(site.client, f"http://{NODE_IP}/", *target) == "200"

    site.node.inside(check)


async def addresses(server: ApiUnderTest, kind: str) -> list[str]:
    """Return the addresses in the status of the object `web`."""
    groups = {"gateway": "gateway.networking.k8s.io/v1", "ingress": "networking.k8s.io/v1"}
    plural = {"gateway": "gateways", "ingress": "ingresses"}[kind]
    answer = await server.request("GET", f"/apis/{groups[kind]}/namespaces/default/{plural}/web")
    status = answer.json.get("status") or {}
    if kind == "gateway":
        return [each["value"] for each in status.get("addresses") or ()]
    return [each["ip"] for each in (status.get("loadBalancer") or {}).get("ingress") or ()]
