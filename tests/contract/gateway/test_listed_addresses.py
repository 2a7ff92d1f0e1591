"""Statuses list the addresses of the nodes that listen already."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from control.controllers import manager
from control.controllers.gateway import listening_nodes, private_ports
from control.controllers.gateway.listening_nodes import refuses
from kube.api import networking_v1
from tests.contract.gateway.conftest import GatewayCluster, prepare
from tests.contract.gateway.test_ingress_ports import HTTP, ingress, listening
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually, running

FIRST, SECOND = "10.0.0.1", "10.0.0.2"


async def gateway_lists(cluster: GatewayCluster, *addresses: str) -> None:
    async def look() -> bool:
        listed = (await cluster.status("gateways", "web")).get("addresses") or ()
        return [each["value"] for each in listed] == list(addresses)

    await eventually(look)


async def ingress_lists(cluster: GatewayCluster, *addresses: str, namespace: str = "infra") -> None:
    async def look() -> bool:
        balancer = (await cluster.client.get(networking_v1.Ingress, "web", namespace)).status.load_balancer
        return [each.ip for each in (balancer.ingress if balancer else ())] == list(addresses)

    await eventually(look)


def message(status: dict[str, Any], type_: str) -> str:
    return next(each["message"] for each in status["conditions"] if each["type"] == type_)


async def test_a_gateway_lists_the_nodes_that_listen_and_is_programmed_with_the_first(cluster: GatewayCluster) -> None:
    cluster.refusing |= {(FIRST, HTTP), (SECOND, HTTP)}
    await cluster.apply(listening("infra", "web", HTTP))

    async def waits() -> bool:
        status = await cluster.status("gateways", "web")
        return "do not listen" in message(status, "Programmed") and not status.get("addresses")

    await eventually(waits)
    cluster.refusing.discard((SECOND, HTTP))
    await gateway_lists(cluster, SECOND)
    await cluster.gateway_has("web", "Programmed", "True")
    cluster.refusing.clear()
    await gateway_lists(cluster, FIRST, SECOND)


async def test_an_ingress_lists_the_nodes_that_listen(cluster: GatewayCluster) -> None:
    cluster.refusing.add((FIRST, HTTP))
    await cluster.apply(ingress("infra", "shop.example"))
    await ingress_lists(cluster, SECOND)
    cluster.refusing.clear()
    await ingress_lists(cluster, FIRST, SECOND)


async def test_an_added_port_is_programmed_once_the_listed_nodes_listen_on_it(cluster: GatewayCluster) -> None:
    await cluster.apply(listening("infra", "web", HTTP))
    await gateway_lists(cluster, FIRST, SECOND)
    cluster.refusing.add((FIRST, 8080))
    spec = {"spec": listening("infra", "web", HTTP, 8080)["spec"]}
    path = "/apis/gateway.networking.k8s.io/v1/namespaces/infra/gateways/web"
    answer = await cluster.server.request("PATCH", path, spec, headers={"Content-Type": "application/merge-patch+json"})
    assert answer.status == 200, answer.body

    async def programmed() -> dict[str, str]:
        listed = (await cluster.status("gateways", "web")).get("listeners") or ()
        return {
            each["name"]: one["status"] for each in listed for one in each["conditions"] if one["type"] == "Programmed"
        }

    async def waits() -> bool:
        return await programmed() == {"l80": "True", "l8080": "False"}

    async def done() -> bool:
        return await programmed() == {"l80": "True", "l8080": "True"}

    await eventually(waits)
    await gateway_lists(cluster, FIRST, SECOND)
    cluster.refusing.clear()
    await eventually(done)


async def test_a_restart_of_the_controller_keeps_the_addresses_of_nodes_that_do_not_listen(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, config = GatewayCluster(server), manager.ControllerConfig(gateway=True)
    monkeypatch.setattr("control.controllers.gateway.controller.refuses", cluster.refuses)
    async with running(cluster.nodes.run()):
        async with running(server.controllers(config)):
            await prepare(cluster)
            await cluster.apply(listening("infra", "web", 8080), ingress("infra", "shop.example"))
            await gateway_lists(cluster, FIRST, SECOND)
            await ingress_lists(cluster, FIRST, SECOND)
        cluster.refusing |= {(FIRST, 8080), (FIRST, HTTP)}
        async with running(server.controllers(config)):
            await cluster.apply(ingress("apps", "second.example"), listening("apps", "second", 8081))
            await cluster.gateway_has("second", "Programmed", "True", namespace="apps")
            await ingress_lists(cluster, FIRST, SECOND, namespace="apps")
            await ingress_lists(cluster, FIRST, SECOND)
            await gateway_lists(cluster, FIRST, SECOND)
            await cluster.gateway_has("web", "Programmed", "True")


async def test_all_addresses_are_listed_after_a_while_if_every_connection_is_refused(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_nodes, "LIMIT_SECONDS", 0.5)
    private = range(private_ports.FIRST, private_ports.LAST + 1)
    cluster.refusing |= {(address, number) for address in (FIRST, SECOND) for number in (HTTP, *private)}
    await cluster.apply(ingress("infra", "shop.example"))
    await ingress_lists(cluster, FIRST, SECOND)


async def test_a_port_without_a_listener_refuses_and_so_does_one_in_front_of_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port, private = open_.getsockname()[1], closed.getsockname()[1]
        assert not await refuses("127.0.0.1", port)
        assert await refuses("127.0.0.1", private)
        assert await refuses("127.0.0.1", port, private)
        assert not await refuses("127.0.0.1", port, port)
