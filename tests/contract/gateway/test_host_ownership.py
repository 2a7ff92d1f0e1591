"""Owners of the hosts of Ingresses on a real API server: records, events for those who do not get a host, and a restart."""

from __future__ import annotations

from typing import Any

import pytest

from control.controllers import manager
from control.controllers.gateway import host_claims
from kube.api import core_v1, networking_v1
from kube.client import Client
from kube.gateway.ingress_hosts import record_name
from kube.gateway.names import HOSTS, NAMESPACE
from kube.object_names import name_of
from tests.contract.gateway.conftest import GatewayCluster
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually, running

CONFIG = manager.ControllerConfig(gateway=True)


def web(namespace: str, *hosts: str, name: str = "web") -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rules": rules(*hosts)},
    }


def rules(*hosts: str) -> list[dict[str, Any]]:
    backend = {"service": {"name": "app", "port": {"number": 8080}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return [{"host": host, "http": {"paths": paths}} for host in hosts]


async def edit(client: Client, namespace: str, *hosts: str) -> None:
    """Have the Ingress of a namespace name other hosts."""
    await client.patch(networking_v1.Ingress, "web", namespace, {"spec": {"rules": rules(*hosts)}})


async def recorded(client: Client, expected: dict[str, str]) -> None:
    """Wait until these are the records, by namespaces."""
    wanted = {record_name(namespace): {"hosts": hosts} for namespace, hosts in expected.items()}

    async def look() -> bool:
        found = {name_of(each): each.data for each in (await client.list(core_v1.ConfigMap, NAMESPACE)).items}
        return found.pop(HOSTS, None) is not None and wanted == {
            name: data for name, data in found.items() if name.startswith(HOSTS)
        }

    await eventually(look)


async def has_addresses(client: Client, namespace: str, expected: bool) -> None:
    """Wait until the Ingress of a namespace has addresses, or none."""

    async def look() -> bool:
        balancer = (await client.get(networking_v1.Ingress, "web", namespace)).status.load_balancer
        return bool(balancer is not None and balancer.ingress) == expected

    await eventually(look)


async def refused(client: Client, namespace: str, text: str) -> None:
    """Wait for an event of a namespace with a text."""

    async def look() -> bool:
        found = (await client.list(core_v1.Event, namespace)).items
        return any(each.reason == "NotServed" and text in (each.message or "") for each in found)

    await eventually(look)


async def test_an_older_ingress_that_is_edited_takes_no_host_of_another_namespace(cluster: GatewayCluster) -> None:
    await cluster.apply(web("apps", "evil.example"))
    await recorded(cluster.client, {"apps": "evil.example"})
    await cluster.apply(web("infra", "shop.example", "*.shop.example"))
    await recorded(cluster.client, {"apps": "evil.example", "infra": "shop.example\n*.shop.example"})
    await edit(cluster.client, "apps", "evil.example", "shop.example", "login.shop.example")

    await refused(cluster.client, "apps", "host shop.example belongs to another namespace")
    await has_addresses(cluster.client, "apps", True)  # of its own host
    await refused(cluster.client, "apps", "host login.shop.example belongs to another namespace")
    await recorded(cluster.client, {"apps": "evil.example", "infra": "shop.example\n*.shop.example"})
    assert not [each for each in (await cluster.client.list(core_v1.Event, "infra")).items if "shop" in each.message]


async def test_a_host_is_given_up_some_time_after_its_namespace_names_it_no_more(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.apply(web("infra", "shop.example"))
    await recorded(cluster.client, {"infra": "shop.example"})
    await cluster.apply(web("apps", "shop.example"))
    await refused(cluster.client, "apps", "shop.example")
    await has_addresses(cluster.client, "infra", True)
    await has_addresses(cluster.client, "apps", False)
    await cluster.client.delete(networking_v1.Ingress, "web", "infra")
    await cluster.apply(web("infra", "shop.example"))
    await cluster.apply(web("infra", "more.example", name="more"))
    await recorded(cluster.client, {"infra": "shop.example\nmore.example"})

    monkeypatch.setattr(host_claims, "KEPT_SECONDS", 0.5)
    await edit(cluster.client, "infra", "more.example")
    await recorded(cluster.client, {"infra": "more.example", "apps": "shop.example"})
    await has_addresses(cluster.client, "apps", True)


async def test_a_host_that_makes_room_for_another_one_goes_to_the_namespace_that_waits_for_it(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_claims, "MOST_HOSTS", 1)
    await cluster.apply(web("apps", "own.example"))
    await recorded(cluster.client, {"apps": "own.example"})
    await cluster.apply(web("infra", "shop.example"))
    await recorded(cluster.client, {"apps": "own.example", "infra": "shop.example"})
    await edit(cluster.client, "apps", "shop.example")
    await refused(cluster.client, "apps", "shop.example")
    await edit(cluster.client, "infra", "more.example")
    await recorded(cluster.client, {"infra": "more.example", "apps": "shop.example"})
    await has_addresses(cluster.client, "apps", True)


async def test_records_that_somebody_changes_or_deletes_are_restored(cluster: GatewayCluster) -> None:
    await cluster.apply(web("infra", "shop.example"))
    await recorded(cluster.client, {"infra": "shop.example"})
    body = {"data": {"hosts": "other.example"}}
    await cluster.client.patch(core_v1.ConfigMap, record_name("infra"), NAMESPACE, body)
    await recorded(cluster.client, {"infra": "shop.example"})
    await cluster.client.delete(core_v1.ConfigMap, record_name("infra"), NAMESPACE)
    await cluster.client.delete(core_v1.ConfigMap, HOSTS, NAMESPACE)
    await recorded(cluster.client, {"infra": "shop.example"})


async def test_owners_survive_a_restart_during_which_others_name_their_hosts(server: ApiUnderTest) -> None:
    cluster = GatewayCluster(server)
    for name in ("infra", "apps"):
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    async with running(server.controllers(CONFIG)):
        await cluster.apply(web("apps", "evil.example"))
        await recorded(cluster.client, {"apps": "evil.example"})
        await cluster.apply(web("infra", "shop.example"))
        await recorded(cluster.client, {"apps": "evil.example", "infra": "shop.example"})
    await edit(cluster.client, "apps", "evil.example", "shop.example")
    await cluster.client.delete(networking_v1.Ingress, "web", "infra")
    await cluster.apply(web("infra", "shop.example"))
    async with running(server.controllers(CONFIG)):
        await refused(cluster.client, "apps", "host shop.example belongs to another namespace")
        await recorded(cluster.client, {"apps": "evil.example", "infra": "shop.example"})


async def test_where_there_are_no_records_yet_the_older_ingress_owns_a_host(server: ApiUnderTest) -> None:
    cluster = GatewayCluster(server)
    for name in ("infra", "apps"):
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await cluster.apply(web("apps", "*.example", "b.example"), web("infra", "a.example", "b.example"))
    async with running(server.controllers(CONFIG)):
        await recorded(cluster.client, {"apps": "*.example\nb.example", "infra": "a.example"})
