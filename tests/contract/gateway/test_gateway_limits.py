"""Limits on the Gateways of a namespace, and what a restart of the controllers keeps."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from control.controllers import manager
from control.controllers.gateway import limits
from control.controllers.gateway.limits import MOST_GATEWAYS
from kube.api import core_v1, discovery_v1, meta_v1, rbac_v1
from kube.client import Client
from kube.gateway.cluster import Cluster
from kube.gateway.computation import Result
from kube.gateway.names import HOSTS, NAMESPACE
from kube.gateway.objects import Gateway
from kube.object_names import key_of
from tests.contract.gateway.conftest import GROUP, GatewayCluster
from tests.contract.gateway.test_gateway_controller import GATEWAY, ROUTE, SERVICE
from tests.contract.gateway.test_gateway_tls import copy, https, secret
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually, running


def named(name: str, **more: Any) -> dict[str, Any]:
    return {**GATEWAY, "metadata": {"name": name, "namespace": more.pop("namespace", "infra")}, **more}


async def test_gateways_beyond_the_limit_of_a_namespace_wait_and_harm_no_other(cluster: GatewayCluster) -> None:
    names = [f"g{number:02}" for number in range(MOST_GATEWAYS)]
    for name in names:
        await cluster.apply(named(name))
    for name in names:
        await cluster.gateway_has(name, "Programmed", "True")
    await cluster.apply(named("waits"), named("other", namespace="apps"))
    await cluster.gateway_has("waits", "Programmed", "False", "NoResources")
    await cluster.gateway_has("waits", "Accepted", "True")
    await cluster.gateway_has("other", "Programmed", "True", namespace="apps")
    assert len(await cluster.generated()) == MOST_GATEWAYS + 1
    await cluster.server.request("DELETE", f"{GROUP}/namespaces/infra/gateways/g00")
    await cluster.gateway_has("waits", "Programmed", "True")


async def test_routes_of_gateways_beyond_the_limit_are_not_compared(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_GATEWAYS", 1)
    compute, computed = Cluster.compute, Counter[str]()

    async def counted(self: Cluster, gateway: Gateway) -> Result:
        computed[key_of(gateway)] += 1
        return await compute(self, gateway)

    monkeypatch.setattr(Cluster, "compute", counted)
    await cluster.apply(named("first"))
    await cluster.gateway_has("first", "Programmed", "True")
    await cluster.apply(
        named("waits"), SERVICE, {**ROUTE, "spec": {**ROUTE["spec"], "parentRefs": [{"name": "waits"}]}}
    )
    await cluster.gateway_has("waits", "Programmed", "False", "NoResources")
    assert computed["infra/waits"] == 0
    await cluster.server.request("DELETE", f"{GROUP}/namespaces/infra/gateways/first")
    await cluster.gateway_has("waits", "Programmed", "True")
    await cluster.route_has("route", "Accepted", "True")


async def test_gateways_of_a_namespace_that_take_long_delay_no_other_namespace(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, began, end = Cluster.compute, Counter[str](), asyncio.Event()

    async def slow(self: Cluster, gateway: Gateway) -> Result:
        if gateway.metadata.namespace == "infra":
            began[key_of(gateway)] += 1
            await end.wait()
        return await compute(self, gateway)

    monkeypatch.setattr(Cluster, "compute", slow)
    names = [f"g{number}" for number in range(8)]
    await cluster.apply(*(named(name) for name in names))

    async def busy() -> bool:
        return bool(began)

    await eventually(busy)
    await cluster.apply(named("other", namespace="apps"))
    await cluster.gateway_has("other", "Programmed", "True", namespace="apps")
    assert len(began) == 1
    end.set()
    for name in names:
        await cluster.gateway_has(name, "Programmed", "True")


async def test_a_route_that_no_listener_allows_has_a_status_that_follows_its_service(cluster: GatewayCluster) -> None:
    await cluster.apply(GATEWAY)
    await cluster.gateway_has("web", "Programmed", "True")
    spec = {**ROUTE["spec"], "parentRefs": [{"name": "web", "namespace": "infra"}]}
    await cluster.apply({**ROUTE, "metadata": {"name": "route", "namespace": "apps"}, "spec": spec})
    path = f"{GROUP}/namespaces/apps/httproutes/route"

    async def has(type_: str, reason: str) -> None:
        async def look() -> bool:
            parents = (await cluster.get(path)).get("status", {}).get("parents", [])
            return any(
                each["type"] == type_ and each["reason"] == reason for one in parents for each in one["conditions"]
            )

        await eventually(look)

    await has("Accepted", "NotAllowedByListeners")
    await has("ResolvedRefs", "BackendNotFound")
    service = {**SERVICE, "metadata": {"name": "app", "namespace": "apps"}}
    await cluster.apply(service)
    await has("ResolvedRefs", "ResolvedRefs")
    await cluster.server.request("DELETE", "/api/v1/namespaces/apps/services/app")
    await has("ResolvedRefs", "BackendNotFound")


async def ports(client: Client) -> dict[str, list[int | None]]:
    found = (await client.list(discovery_v1.EndpointSlice, NAMESPACE)).items
    return {each.metadata.name or "": [port.port for port in each.ports] for each in found}


async def test_a_restart_keeps_ports_and_copies_and_removes_what_went_meanwhile(server: ApiUnderTest) -> None:
    cluster = GatewayCluster(server)
    config = manager.ControllerConfig(gateway=True)
    for name in ("infra", "apps"):
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    async with running(cluster.nodes.run()):
        async with running(server.controllers(config)):
            await cluster.node("n1", "10.0.0.1")

            async def installed() -> bool:
                return bool((await cluster.get(f"{GROUP}/gatewayclasses/wherry")).get("status"))

            await eventually(installed)
            await cluster.apply(SERVICE, secret("cert", "infra"), https(name="cert"), ROUTE)
            await cluster.apply(named("second"), named("third"))
            for name in ("web", "second", "third"):
                await cluster.gateway_has(name, "Programmed", "True")
            await cluster.route_has("route", "Accepted", "True")
            await copy(cluster, "infra", "cert")
        before, (kept,) = await ports(cluster.client), await cluster.copies()
        for name in ("second", "third"):
            await cluster.server.request("DELETE", f"{GROUP}/namespaces/infra/gateways/{name}")
        await cluster.apply(named("second"), named("fourth"))
        stale = core_v1.Secret(type="kubernetes.io/tls", data=kept.data)
        stale.metadata = meta_v1.ObjectMeta(name="tls-stale", namespace=NAMESPACE, labels=kept.metadata.labels)
        await cluster.client.create(stale)
        async with running(server.controllers(config)):
            await cluster.gateway_has("second", "Programmed", "True")
            await cluster.gateway_has("fourth", "Programmed", "True")
            await copy(cluster, "infra", "cert")

            async def replaced() -> bool:
                return len(await cluster.generated()) == 3

            await eventually(replaced)
            after = await ports(cluster.client)
    assert len(before.keys() & after.keys()) == 1
    assert all(after[name] == before[name] for name in before.keys() & after.keys())
    assert len({port for each in after.values() for port in each}) == 3
    assert (await cluster.copies())[0].metadata.uid == kept.metadata.uid


async def test_a_disabled_addon_leaves_nothing_that_it_generated(server: ApiUnderTest) -> None:
    cluster = GatewayCluster(server)
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "infra"}})
    async with running(server.controllers(manager.ControllerConfig(gateway=True))):

        async def installed() -> bool:
            return bool((await cluster.get(f"{GROUP}/gatewayclasses/wherry")).get("status"))

        await eventually(installed)
        await cluster.apply(secret("cert", "infra"), https(name="cert"))
        await copy(cluster, "infra", "cert")

        async def generated() -> bool:
            return bool(await cluster.generated())

        await eventually(generated)
    async with running(server.controllers(manager.ControllerConfig())):

        async def deleted() -> bool:
            slices = (await cluster.client.list(discovery_v1.EndpointSlice, NAMESPACE)).items
            return not (slices or await cluster.generated() or await cluster.copies())

        await eventually(deleted)
        assert (await cluster.get(f"{GROUP}/namespaces/infra/gateways/web"))["kind"] == "Gateway"


async def test_an_editor_of_a_namespace_manages_gateways_and_routes_there_alone(cluster: GatewayCluster) -> None:
    role = rbac_v1.RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="edit")
    subject = rbac_v1.Subject(api_group="rbac.authorization.k8s.io", kind="User", name="jane")
    metadata = meta_v1.ObjectMeta(name="jane", namespace="infra")
    await cluster.client.create(rbac_v1.RoleBinding(metadata=metadata, role_ref=role, subjects=[subject]))
    jane = ("jane", ())

    async def allowed() -> bool:
        path = f"{GROUP}/namespaces/infra/gateways"
        return (await cluster.server.request("POST", path, GATEWAY, user=jane)).status == 201

    await eventually(allowed)
    path = f"{GROUP}/namespaces/infra/httproutes"
    assert (await cluster.server.request("POST", path, ROUTE, user=jane)).status == 201
    for method, path in (
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/services"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        ("PATCH", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{HOSTS}"),
        ("GET", f"{GROUP}/namespaces/apps/gateways"),
        ("PATCH", f"{GROUP}/namespaces/infra/gateways/web/status"),
        ("DELETE", f"{GROUP}/gatewayclasses/wherry"),
    ):
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = await cluster.server.request(method, path, {"status": {}}, user=jane, headers=headers)
        assert answer.status == 403, (method, path, answer.body)
