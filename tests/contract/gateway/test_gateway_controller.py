"""The gateway's controller on a real API server: statuses, generated objects, and their repair."""

from __future__ import annotations

from functools import partial

import pytest

from control.controllers.gateway import controller, host_claims
from kube.api import core_v1, discovery_v1, networking_v1
from kube.gateway.names import NAMESPACE
from tests.contract.gateway.conftest import GROUP, GatewayCluster
from tests.support.hollow import eventually

GATEWAY = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    "metadata": {"name": "web", "namespace": "infra"},
    "spec": {"gatewayClassName": "wherry", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
}
ROUTE = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": "route", "namespace": "infra"},
    "spec": {"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": [{"name": "app", "port": 8080}]}]},
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "app", "namespace": "infra"},
    "spec": {"ports": [{"port": 8080}]},
}
INGRESS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "Ingress",
    "metadata": {"name": "web", "namespace": "infra"},
    "spec": {"defaultBackend": {"service": {"name": "app", "port": {"number": 8080}}}},
}


async def test_a_gateway_gets_a_service_slices_and_the_nodes_addresses(cluster: GatewayCluster) -> None:
    await cluster.apply(SERVICE, GATEWAY, ROUTE)
    await cluster.gateway_has("web", "Programmed", "True")
    await cluster.route_has("route", "Accepted", "True")
    await cluster.route_has("route", "ResolvedRefs", "True")

    async def addressed() -> bool:
        status = await cluster.status("gateways", "web")
        return [each["value"] for each in status["addresses"]] == ["10.0.0.1", "10.0.0.2"]

    await eventually(addressed)
    (service,) = await cluster.generated()
    slices = (await cluster.client.list(discovery_v1.EndpointSlice, NAMESPACE)).items
    assert service.spec.external_traffic_policy == service.spec.internal_traffic_policy == "Local"
    assert [(each.name, each.port, each.node_port) for each in service.spec.ports] == [("port-80", 80, None)]
    (ports,) = {tuple((port.name, port.port) for port in each.ports) for each in slices}
    assert ports == (("port-80", service.spec.ports[0].target_port),)
    assert [(each.node_name, each.addresses) for each in slices[0].endpoints] == [
        ("n1", ["10.0.0.1"]),
        ("n2", ["10.0.0.2"]),
    ]
    listed = (await cluster.status("gateways", "web"))["listeners"]
    assert [(each["name"], each["attachedRoutes"]) for each in listed] == [("http", 1)]


async def test_generated_objects_are_restored_and_go_with_their_gateway(cluster: GatewayCluster) -> None:
    await cluster.apply(GATEWAY)
    await cluster.gateway_has("web", "Programmed", "True")
    (service,) = await cluster.generated()
    name, number = service.metadata.name or "", service.spec.ports[0].target_port
    await cluster.client.patch(core_v1.Service, name, NAMESPACE, {"spec": {"selector": {"app": "evil"}}})
    await cluster.client.patch(core_v1.Service, name, NAMESPACE, {"metadata": {"annotations": None}})

    async def restored() -> bool:
        found = await cluster.client.get(core_v1.Service, name, NAMESPACE)
        return not found.spec.selector and "gateway.wherry.dev/gateway" in found.metadata.annotations

    await eventually(restored)
    for each in (await cluster.client.list(discovery_v1.EndpointSlice, NAMESPACE)).items:
        await cluster.client.delete(discovery_v1.EndpointSlice, each.metadata.name or "", NAMESPACE)

    async def again() -> bool:
        found = (await cluster.client.list(discovery_v1.EndpointSlice, NAMESPACE)).items
        return len(found) == 1 and found[0].ports[0].port == number

    await eventually(again)
    await cluster.server.request("DELETE", f"{GROUP}/namespaces/infra/gateways/web")

    async def gone() -> bool:
        return not await cluster.generated()

    await eventually(gone)


async def test_a_route_loses_its_status_with_its_gateway_and_keeps_that_of_other_controllers(
    cluster: GatewayCluster,
) -> None:
    await cluster.apply(SERVICE, GATEWAY, ROUTE)
    await cluster.route_has("route", "Accepted", "True")
    now = "2026-01-01T00:00:00Z"
    other = {
        "parentRef": {"name": "elsewhere"},
        "controllerName": "example.com/other",
        "conditions": [
            {"type": "Accepted", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": now}
        ],
    }
    own = (await cluster.status("httproutes", "route"))["parents"]
    path = f"{GROUP}/namespaces/infra/httproutes/route/status"
    merge = {"Content-Type": "application/merge-patch+json"}
    answer = await cluster.server.request("PATCH", path, {"status": {"parents": [*own, other]}}, headers=merge)
    assert answer.status == 200, answer.body
    await cluster.server.request("DELETE", f"{GROUP}/namespaces/infra/gateways/web")

    async def left() -> bool:
        parents = (await cluster.status("httproutes", "route"))["parents"]
        return [each["controllerName"] for each in parents] == ["example.com/other"]

    await eventually(left)


async def test_an_ingress_of_another_class_keeps_the_address_of_that_classs_controller(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ["10.0.0.1", "10.0.0.2"]
    await cluster.apply(SERVICE, INGRESS)

    async def addresses(name: str) -> list[str]:
        found = (await cluster.client.get(networking_v1.Ingress, name, "infra")).status.load_balancer
        return [each.ip or "" for each in (found.ingress if found is not None else ())]

    async def is_served(name: str) -> bool:
        return await addresses(name) == served

    await eventually(partial(is_served, "web"))
    monkeypatch.setattr(controller, "DELAY_SECONDS", 0.5)  # the other one comes first
    await cluster.client.patch(networking_v1.Ingress, "web", "infra", {"spec": {"ingressClassName": "other"}})
    theirs = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.77"}]}}}
    await cluster.client.patch(networking_v1.Ingress, "web", "infra", theirs, subresource="status")
    for name in ("more", "last"):  # the status of the first one is reconciled before that of the last one
        await cluster.apply(INGRESS | {"metadata": {"name": name, "namespace": "infra"}})
        await eventually(partial(is_served, name))
    assert await addresses("web") == ["192.0.2.77"]


async def test_an_ingress_gets_an_address_and_loses_it_with_its_class(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_claims, "KEPT_SECONDS", 0.5)
    await cluster.apply(SERVICE, INGRESS)

    async def addresses() -> list[str]:
        found = await cluster.client.get(networking_v1.Ingress, "web", "infra")
        assert found.spec.ingress_class_name == "wherry"
        balancer = found.status.load_balancer
        return [each.ip or "" for each in (balancer.ingress if balancer is not None else ())]

    async def served() -> bool:
        return await addresses() == ["10.0.0.1", "10.0.0.2"]

    await eventually(served)
    assert [each.metadata.name for each in await cluster.generated()] == ["ingress"]
    found = await cluster.client.get(networking_v1.Ingress, "web", "infra")
    found.spec.ingress_class_name = "other"
    await cluster.client.update(found)

    async def released() -> bool:
        found = (await cluster.client.get(networking_v1.Ingress, "web", "infra")).status.load_balancer
        return (found is None or not found.ingress) and not await cluster.generated()

    await eventually(released)


@pytest.mark.parametrize("name", ["gateways", "httproutes"])
async def test_a_deleted_definition_is_installed_again(cluster: GatewayCluster, name: str) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.gateway.networking.k8s.io"
    uid = (await cluster.get(path))["metadata"]["uid"]
    await cluster.server.request("DELETE", path)

    async def installed() -> bool:
        found = await cluster.get(path)
        return found.get("metadata", {}).get("uid", uid) != uid

    await eventually(installed)
