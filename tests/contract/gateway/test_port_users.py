"""Events of Ingresses and Gateways name what else has their ports of the nodes."""

from __future__ import annotations

import pytest

from control.controllers.gateway import plan
from kube.api import core_v1
from kube.gateway.names import NAMESPACE
from tests.contract.gateway.conftest import GatewayCluster
from tests.contract.gateway.test_ingress_ports import HTTP, HTTPS, balancer, ingress, listening, not_served, serves
from tests.contract.gateway.test_listed_addresses import FIRST, SECOND, gateway_lists, ingress_lists
from tests.support.hollow import eventually


async def messages(cluster: GatewayCluster, namespace: str) -> list[str]:
    found = (await cluster.client.list(core_v1.Event, namespace)).items
    return [each.message or "" for each in found if each.reason == "NotServed"]


async def test_an_ingress_whose_only_port_a_service_has_is_without_an_address(cluster: GatewayCluster) -> None:
    await cluster.apply(balancer("infra", "web", HTTP))
    await serves(cluster, "infra/web", HTTP)
    await cluster.apply(ingress("infra", "shop.example"), ingress("apps", "mail.example"))
    await not_served(cluster, "infra", "HTTP is not served: port 80 of the nodes is used by Service infra/web")
    await not_served(
        cluster, "apps", "HTTP is not served: port 80 of the nodes is used by a Service in another namespace"
    )
    await serves(cluster, f"{NAMESPACE}/ingress", HTTPS)
    await ingress_lists(cluster)
    done = await cluster.server.kubectl("describe", "ingress", "web", "-n", "infra")
    assert "used by Service infra/web" in done.stdout
    await cluster.client.delete(core_v1.Service, "web", "infra")
    await ingress_lists(cluster, FIRST, SECOND)
    named = [each for each in await messages(cluster, "infra") if "infra/web" in each]
    assert len(named) == 1


async def test_an_ingress_whose_ports_are_all_taken_is_at_the_cluster_ip_and_says_so(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "BALANCER_SECONDS", 0.2)
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proxy", "namespace": "infra"}, "spec": spec}
    answer = await cluster.server.request("POST", "/api/v1/namespaces/infra/pods", pod)
    assert answer.status == 201, answer.body
    await cluster.apply(balancer("apps", "b", HTTPS))
    await serves(cluster, "apps/b", HTTPS)
    await cluster.apply(ingress("infra", "shop.example"))
    text = "HTTP is served at the cluster IP only: port 80 of the nodes is used by Pod infra/proxy, as a host port"
    await not_served(cluster, "infra", text)
    service = await cluster.client.get(core_v1.Service, "ingress", NAMESPACE)
    await ingress_lists(cluster, service.spec.cluster_ip or "")


async def test_a_gateway_whose_port_another_one_has_says_so_once(
    cluster: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "BALANCER_SECONDS", 0.2)
    await cluster.apply(listening("infra", "web", 8080))
    await gateway_lists(cluster, FIRST, SECOND)
    await cluster.apply(listening("infra", "second", 8080), listening("apps", "third", 8080))
    text = "Port 8080 is served at the cluster IP only: port 8080 of the nodes is used by"
    await not_served(cluster, "infra", f"{text} Gateway infra/web")
    await not_served(cluster, "apps", f"{text} a Gateway in another namespace")
    await cluster.apply(listening("infra", "other", 8081))
    await cluster.gateway_has("other", "Programmed", "True")

    async def counted() -> bool:
        found = (await cluster.client.list(core_v1.Event, "infra")).items
        return [each.count for each in found if each.reason == "NotServed"] == [1]

    await eventually(counted)


async def test_a_service_that_waits_for_the_port_is_not_named(cluster: GatewayCluster) -> None:
    await cluster.apply(listening("infra", "web", HTTP))
    await gateway_lists(cluster, FIRST, SECOND)
    await cluster.apply(balancer("apps", "waiting", HTTP), ingress("apps", "mail.example"))
    await not_served(
        cluster, "apps", "HTTP is not served: port 80 of the nodes is used by a Gateway in another namespace"
    )
