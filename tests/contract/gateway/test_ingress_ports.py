"""Ports 80 and 443 of the nodes are those of all Ingresses: an account of one namespace does not get them from the others."""

from __future__ import annotations

from typing import Any

import pytest

from control.controllers.gateway import host_claims
from kube.api import core_v1, networking_v1
from kube.gateway.names import NAMESPACE
from tests.contract.gateway.conftest import GatewayCluster
from tests.contract.gateway.test_gateway_tls import secret
from tests.support.hollow import eventually

HTTP, HTTPS = 80, 443


def ingress(namespace: str, host: str, *, tls: bool = False) -> dict[str, Any]:
    backend = {"service": {"name": "app", "port": {"number": 8080}}}
    spec: dict[str, Any] = {
        "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]
    }
    if tls:
        spec["tls"] = [{"hosts": [host], "secretName": "cert"}]
    metadata = {"name": "web", "namespace": namespace}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def balancer(namespace: str, name: str, port: int) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "selector": {"app": "x"}, "ports": [{"port": port, "protocol": "TCP"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def listening(namespace: str, name: str, *ports: int) -> dict[str, Any]:
    listeners = [{"name": f"l{port}", "port": port, "protocol": "HTTP"} for port in ports]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"gatewayClassName": "wherry", "listeners": listeners},
    }


async def served(cluster: GatewayCluster, key: str) -> set[int]:
    """Return the ports that a Service has at the nodes' addresses."""
    namespace, _, name = key.partition("/")
    listed = (await cluster.client.list(core_v1.Service, namespace)).items
    balancers = [each.status.load_balancer for each in listed if each.metadata.name == name]
    return {port.port for found in balancers if found is not None for each in found.ingress for port in each.ports}


async def serves(cluster: GatewayCluster, key: str, *ports: int) -> None:
    async def look() -> bool:
        return await served(cluster, key) == set(ports)

    await eventually(look)


async def waits(cluster: GatewayCluster, name: str) -> None:
    """Wait until a Service of the namespace `apps` is refused its ports."""

    async def look() -> bool:
        found = (await cluster.client.list(core_v1.Event, "apps")).items
        return any(
            each.reason == "SyncLoadBalancerFailed" and each.involved_object and each.involved_object.name == name
            for each in found
        )

    await eventually(look)


async def attacked(cluster: GatewayCluster) -> None:
    """Let an account of the namespace `apps` wait for both ports."""
    await cluster.apply(balancer("apps", "b", HTTPS), balancer("apps", "a", HTTP))
    await waits(cluster, "a")
    await waits(cluster, "b")


async def has_copies(cluster: GatewayCluster, number: int) -> None:
    async def look() -> bool:
        return len(await cluster.copies()) == number

    await eventually(look)


async def not_served(cluster: GatewayCluster, namespace: str, text: str) -> None:
    """Wait for an event of an Ingress with a text."""

    async def reported() -> bool:
        found = (await cluster.client.list(core_v1.Event, namespace)).items
        return any(each.reason == "NotServed" and text in (each.message or "") for each in found)

    await eventually(reported)


async def uid(cluster: GatewayCluster) -> str:
    return (await cluster.client.get(core_v1.Service, "ingress", NAMESPACE)).metadata.uid or ""


async def test_ingresses_have_both_ports_before_one_has_a_certificate(cluster: GatewayCluster) -> None:
    await cluster.apply(ingress("infra", "shop.example"))
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
    await attacked(cluster)
    await cluster.apply(secret("cert", "apps"), ingress("apps", "evil.example", tls=True))
    await has_copies(cluster, 1)
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
    assert not await served(cluster, "apps/a") and not await served(cluster, "apps/b")


async def test_whoever_had_the_port_of_https_first_does_not_get_that_of_http(cluster: GatewayCluster) -> None:
    await cluster.apply(balancer("apps", "b", HTTPS))
    await serves(cluster, "apps/b", HTTPS)
    await cluster.apply(ingress("infra", "shop.example"))
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP)
    await cluster.apply(balancer("apps", "a", HTTP))
    await waits(cluster, "a")
    await cluster.apply(secret("cert", "apps"), ingress("apps", "evil.example", tls=True))
    await has_copies(cluster, 1)
    await not_served(cluster, "apps", "HTTPS is not served")
    assert await served(cluster, f"{NAMESPACE}/ingress") == {HTTP}
    assert not await served(cluster, "apps/a")
    events = (await cluster.client.list(core_v1.Event, "infra")).items
    assert not [each for each in events if "HTTP" in (each.message or "")], "it has no certificate"
    await cluster.client.delete(core_v1.Service, "b", "apps")
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)


async def test_a_certificate_that_is_replaced_gives_no_port_away(cluster: GatewayCluster) -> None:
    await cluster.apply(secret("cert", "infra"), ingress("infra", "shop.example", tls=True))
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
    await attacked(cluster)
    await cluster.client.delete(core_v1.Secret, "cert", "infra")
    await not_served(cluster, "infra", "cert")
    await cluster.apply(secret("cert", "infra"))
    await has_copies(cluster, 1)
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
    assert not await served(cluster, "apps/a") and not await served(cluster, "apps/b")


async def test_the_last_ingress_that_is_replaced_gives_no_port_away(cluster: GatewayCluster) -> None:
    await cluster.apply(secret("cert", "infra"), ingress("infra", "shop.example", tls=True))
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
    before = await uid(cluster)
    await attacked(cluster)
    await cluster.client.delete(networking_v1.Ingress, "web", "infra")
    await has_copies(cluster, 0)
    await cluster.apply(ingress("infra", "shop.example", tls=True))
    await has_copies(cluster, 1)
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
    assert await uid(cluster) == before
    assert not await served(cluster, "apps/a") and not await served(cluster, "apps/b")


async def test_the_ports_are_given_up_some_time_after_the_last_ingress(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.apply(ingress("infra", "shop.example"))
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
    await attacked(cluster)
    monkeypatch.setattr(host_claims, "KEPT_SECONDS", 0.5)
    await cluster.client.delete(networking_v1.Ingress, "web", "infra")
    await serves(cluster, "apps/a", HTTP)
    await serves(cluster, "apps/b", HTTPS)
    assert not await cluster.generated()


async def test_a_gateway_that_adds_a_taken_port_serves_its_others_and_says_so(cluster: GatewayCluster) -> None:
    await cluster.apply(balancer("apps", "b", HTTPS))
    await serves(cluster, "apps/b", HTTPS)
    await cluster.apply(listening("infra", "web", HTTP))
    await cluster.gateway_has("web", "Programmed", "True")
    await cluster.apply(balancer("apps", "a", HTTP))
    await waits(cluster, "a")
    spec = {"spec": listening("infra", "web", HTTP, HTTPS)["spec"]}
    path = "/apis/gateway.networking.k8s.io/v1/namespaces/infra/gateways/web"
    answer = await cluster.server.request("PATCH", path, spec, headers={"Content-Type": "application/merge-patch+json"})
    assert answer.status == 200, answer.body

    async def said() -> bool:
        status = await cluster.status("gateways", "web")
        found = {
            each["name"]: {one["type"]: one["status"] for one in each["conditions"]}.get("Programmed")
            for each in status.get("listeners") or ()
        }
        return found == {"l80": "True", "l443": "False"} and len(status["addresses"]) == 2

    await eventually(said)
    await cluster.gateway_has("web", "Programmed", "True")
    assert not await served(cluster, "apps/a")
    await cluster.client.delete(core_v1.Service, "b", "apps")
    (service,) = await cluster.generated()
    await serves(cluster, f"{NAMESPACE}/{service.metadata.name}", HTTP, HTTPS)
