"""Ports on which the nodes' gateways listen: a Gateway that asks for more than are free keeps those that it has."""

from __future__ import annotations

from typing import Any

import pytest

from control.controllers.gateway import generated
from control.controllers.gateway.private_ports import PrivatePorts
from kube.gateway.names import NAMESPACE
from tests.contract.gateway.conftest import GROUP, GatewayCluster
from tests.contract.gateway.test_ingress_ports import HTTP, HTTPS, balancer, ingress, listening, served, serves, waits
from tests.support.hollow import eventually


@pytest.fixture
def few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave three ports to Gateways, and two to Ingresses."""
    monkeypatch.setattr(generated, "PrivatePorts", lambda: PrivatePorts(61000, 61004))


async def programmed(cluster: GatewayCluster, name: str) -> dict[str, Any]:
    """Return the status and message of the condition Programmed of each listener of a Gateway."""
    status = await cluster.status("gateways", name)
    return {
        each["name"]: (one["status"], one["message"])
        for each in status.get("listeners") or ()
        for one in each["conditions"]
        if one["type"] == "Programmed"
    }


async def test_a_gateway_that_adds_a_listener_keeps_its_ports_if_no_more_are_free(
    few_ports: None, cluster: GatewayCluster
) -> None:
    await cluster.apply(listening("infra", "shop", 8080))
    await cluster.gateway_has("shop", "Programmed", "True")
    (service,) = await cluster.generated()
    key = f"{NAMESPACE}/{service.metadata.name}"
    await serves(cluster, key, 8080)
    await cluster.apply(listening("apps", "many", 8443, 8444), balancer("apps", "steal", 8080))
    await cluster.gateway_has("many", "Programmed", "True", namespace="apps")
    await waits(cluster, "steal")
    spec = {"spec": listening("infra", "shop", 8080, 8081)["spec"]}
    path, kind = f"{GROUP}/namespaces/infra/gateways/shop", {"Content-Type": "application/merge-patch+json"}
    answer = await cluster.server.request("PATCH", path, spec, headers=kind)
    assert answer.status == 200, answer.body

    async def reported() -> bool:
        found = await programmed(cluster, "shop")
        lacking, message = found.get("l8081", ("", ""))
        return found["l8080"][0] == "True" and lacking == "False" and "ports of gateways on the nodes" in message

    await eventually(reported)
    await cluster.gateway_has("shop", "Programmed", "True")
    assert await served(cluster, key) == {8080} and not await served(cluster, "apps/steal")
    await cluster.apply(ingress("infra", "shop.example"))
    await serves(cluster, f"{NAMESPACE}/ingress", HTTP, HTTPS)
