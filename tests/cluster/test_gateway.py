"""A Gateway and an Ingress on real nodes: by each machine's address, by the cluster IP, with TLS, through changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster, eventually
from tests.support.host import Host
from tests.support.machines import Machine, Machines
from tests.support.pods import apply, container, execute, pod, wait_running

ECHO = (
    'while read -r line && [ "$line" != "$(printf "\\r")" ]; do echo "$line"; done > /tmp/head; '
    'printf "HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n%s\\n" "$(hostname)"; cat /tmp/head'
)
"""Answers a request with the pod's name and the request's head."""
HOST, SECURE, LEGACY = "web.example.com", "secure.example.com", "legacy.example.com"


def backend(name: str) -> list[dict[str, Any]]:
    """A pod that echoes requests, and its Service."""
    script = f"trap 'exit 0' TERM; while :; do nc -l -p 8080 -e sh -c '{ECHO}'; done & while :; do sleep 0.2; done"
    tolerations = [{"operator": "Exists", "effect": "NoSchedule"}]
    ports = [{"port": 80, "targetPort": 8080}]
    return [
        pod(name, container(script), labels={"app": name}, tolerations=tolerations),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": ports},
        },
    ]


def gateway() -> dict[str, Any]:
    tls = {"certificateRefs": [{"name": "secure"}]}
    listeners = [
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": SECURE, "tls": tls},
    ]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "web"},
        "spec": {"gatewayClassName": "wherry", "listeners": listeners},
    }


def route(*services: str) -> dict[str, Any]:
    """A route that shares requests among Services."""
    rule = {"backendRefs": [{"name": each, "port": 80} for each in services]}
    spec = {"parentRefs": [{"name": "web"}], "hostnames": [HOST, SECURE], "rules": [rule]}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "web"},
        "spec": spec,
    }


def ingress(service: str) -> dict[str, Any]:
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web"},
        "spec": {"rules": [{"host": LEGACY, "http": {"paths": [path]}}]},
    }


def fetch(origin: Host, url: str, *options: str, outside: bool = True) -> str:
    """Return the response's body; the client is outside of the nodes, or inside of this one if `outside` is false."""
    return origin.run("curl", "-s", "--max-time", "5", *options, url, outside=outside, check=False).stdout


@pytest.fixture
def two(three: Machines, ns3: str) -> tuple[Machine, Machine]:
    """Two machines, and a backend that runs on the second one alone."""
    first, second = three[0], three[1]
    objects = backend("one")
    objects[0]["spec"]["nodeName"] = second.node
    apply(first, ns3, *objects)
    wait_running(first, ns3, "one")
    return first, second


def certificate(on: Cluster, ns: str, folder: Path) -> Path:
    """Store a certificate as the Secret `secure`, and return its file."""
    key, cert = folder / "secure.key", folder / "secure.crt"
    on.host.run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-keyout", str(key), "-out", str(cert), "-subj", f"/CN={SECURE}", "-addext", f"subjectAltName=DNS:{SECURE}"),
    )
    on.kubectl("create", "secret", "tls", "secure", f"--cert={cert}", f"--key={key}", "-n", ns)
    return cert


def test_every_machine_serves_a_gateway_and_the_backend_sees_the_client(
    two: tuple[Machine, Machine], ns3: str, tmp_path: Path
) -> None:
    first, second = two
    cert = certificate(first, ns3, tmp_path)
    apply(first, ns3, gateway(), route("one"))
    first.kubectl("wait", "--for=condition=Programmed", "gateway/web", "-n", ns3, "--timeout=60s")

    wanted = {first.host.address, second.host.address}

    def listed() -> bool:
        """Return whether the nodes' addresses are listed: each is when its node accepts connections."""
        status = first.get("gateway", "web", "-n", ns3)["status"]
        return wanted <= {each["value"] for each in status.get("addresses", ())}

    eventually(listed, "the addresses of both nodes")
    for machine in two:
        address = machine.host.address
        url, host = f"http://{address}/path", ("-H", f"Host: {HOST}")
        eventually(lambda m=machine, u=url, h=host: fetch(m.host, u, *h).startswith("one\n"), f"{machine.node} serves")  # type: ignore[misc]
        head = fetch(machine.host, url, *host).lower()
        assert f"x-forwarded-for: {machine.host.gateway}\n" in head.replace("\r", "")
        assert "get /path http/1.1" in head and f"host: {HOST}" in head
        resolved = ("--cacert", str(cert), "--resolve", f"{SECURE}:443:{address}")
        assert "x-forwarded-proto: https" in fetch(machine.host, f"https://{SECURE}/", *resolved).lower()
        assert fetch(machine.host, url, "-o", "/dev/null", "-w", "%{http_code}") == "404"

    found = first.get("service", "-n", "wherry-gateway", "-l", "gateway.wherry.dev/gateway-uid")["items"]
    inside = next(each["spec"]["clusterIP"] for each in found if len(each["spec"]["ports"]) == 2)
    done = execute(first, ns3, "one", f"wget -q -O - --header 'Host: {HOST}' http://{inside}/")
    assert done.startswith("one\n")


def test_requests_continue_while_the_route_and_its_pods_change(two: tuple[Machine, Machine], ns3: str) -> None:
    first, second = two
    plain = gateway()
    plain["spec"]["listeners"].pop()
    plain["spec"]["listeners"][0]["port"] = 8088
    apply(first, ns3, plain, route("one"))
    url, host = f"http://{second.host.address}:8088/", ("-H", f"Host: {HOST}")
    eventually(lambda: fetch(second.host, url, *host).startswith("one\n"), "the gateway serves")

    apply(first, ns3, *backend("other"))
    wait_running(first, ns3, "other")
    apply(first, ns3, route("one", "other"))
    eventually(lambda: fetch(second.host, url, *host).startswith("other\n"), "the new backend has its share")
    apply(first, ns3, route("other"))
    eventually(
        lambda: {fetch(second.host, url, *host).partition("\n")[0] for _ in range(6)} == {"other"}, "it has all of them"
    )
    first.kubectl("delete", "pod", "other", "-n", ns3)
    status = ("-o", "/dev/null", "-w", "%{http_code}")
    eventually(lambda: fetch(second.host, url, *host, *status) == "503", "no endpoint is left")


def test_an_ingress_is_served_and_has_an_address_until_it_is_deleted(two: tuple[Machine, Machine], ns3: str) -> None:
    first, second = two
    apply(first, ns3, ingress("one"))
    host = ("-H", f"Host: {LEGACY}")

    def addresses() -> set[str]:
        status = first.get("ingress", "web", "-n", ns3)["status"]
        return {each["ip"] for each in status.get("loadBalancer", {}).get("ingress", ())}

    eventually(lambda: {first.host.address, second.host.address} <= addresses(), "the Ingress has addresses")
    table = first.kubectl("get", "ingress", "web", "-n", ns3, "--no-headers").stdout
    assert first.host.address in table
    for machine in two:
        url = f"http://{machine.host.address}/"
        eventually(lambda m=machine, u=url: fetch(m.host, u, *host).startswith("one\n"), f"{machine.node} serves")  # type: ignore[misc]
    assert json.loads(first.kubectl("get", "ingressclass", "wherry", "-o", "json").stdout)
    first.kubectl("delete", "ingress", "web", "-n", ns3)
    status = ("-o", "/dev/null", "-w", "%{http_code}")
    # The port stays that of Ingresses for a minute.
    eventually(lambda: fetch(first.host, f"http://{first.host.address}/", *host, *status) == "404", "no rule is left")
    eventually(
        lambda: fetch(first.host, f"http://{first.host.address}/", *host, *status) == "000", "nobody has the port", 120
    )
