"""Services of type LoadBalancer against a real API server, through kubectl where people would look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.controllers import manager
from control.controllers.service_lb.port_records import TYPE
from kube.api import core_v1, meta_v1
from kube.client import Client
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


class Cluster:
    def __init__(self, server: ApiUnderTest, client: Client, nodes: HollowNodes) -> None:
        self.server, self.client, self.nodes = server, client, nodes

    async def create(self, name: str, *ports: int, **spec: Any) -> core_v1.Service:
        spec = {"selector": {"app": name}, "type": "LoadBalancer"} | spec
        listed = [core_v1.ServicePort(name=f"p{port}", port=port) for port in ports or (80,)]
        return await self.client.create(
            core_v1.Service(
                metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
                spec=core_v1.ServiceSpec(ports=listed, **spec),
            )
        )

    async def get(self, name: str) -> core_v1.Service:
        return await self.client.get(core_v1.Service, name, "default")

    async def addresses(self, name: str) -> list[str]:
        balancer = (await self.get(name)).status.load_balancer
        return [each.ip or "" for each in (balancer.ingress if balancer else ())]

    async def reported(self, name: str, reason: str) -> str:
        events = (await self.client.list(core_v1.Event, "default")).items
        return next(
            (
                event.message or "?"
                for event in events
                if event.reason == reason and event.involved_object and event.involved_object.name == name
            ),
            "",
        )

    async def pod_runs(self, name: str) -> None:
        async def look() -> bool:
            return (await self.client.get(core_v1.Pod, name, "default")).status.phase == "Running"

        await eventually(look)

    async def serves(self, name: str, *addresses: str) -> None:
        async def look() -> bool:
            return await self.addresses(name) == list(addresses)

        await eventually(look)

    async def event(self, name: str, reason: str, text: str) -> None:
        async def look() -> bool:
            return text in await self.reported(name, reason)

        await eventually(look)

    async def node(self, name: str, ip: str) -> None:
        await self.nodes.register(name)
        address = {"status": {"addresses": [{"type": "InternalIP", "address": ip}]}}
        await self.client.patch(core_v1.Node, name, "", address, subresource="status")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with api_server(tmp_path, enable_controllers=False, enable_scheduler=False) as server:
        client = server.client()
        made = Cluster(server, client, HollowNodes(client))
        async with running(server.controllers(manager.ControllerConfig(node_mask=24)), made.nodes.run()):
            await made.node("n1", "10.0.0.1")
            await made.node("n2", "10.0.0.2")
            yield made


async def test_a_service_gets_the_ready_nodes_addresses_and_keeps_up_with_them(cluster: Cluster) -> None:
    await cluster.create("web", 80)
    await cluster.serves("web", "10.0.0.1", "10.0.0.2")
    done = await cluster.server.kubectl("get", "service", "web")
    assert "10.0.0.1,10.0.0.2" in done.stdout
    made = await cluster.get("web")
    assert made.status.load_balancer and made.status.load_balancer.ingress[0].ip_mode == "VIP"
    assert FINALIZER in made.metadata.finalizers
    await cluster.event("web", "EnsuredLoadBalancer", "Ensured load balancer")
    label = {"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}}}
    await cluster.client.patch(core_v1.Node, "n1", "", label)
    await cluster.serves("web", "10.0.0.2")
    await cluster.event("web", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
    await cluster.client.delete(core_v1.Node, "n2")
    await cluster.serves("web")
    await cluster.event("web", "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")


async def test_a_deleted_service_goes_and_its_port_passes_to_the_one_that_waits(cluster: Cluster) -> None:
    await cluster.create("first", 80)
    await cluster.serves("first", "10.0.0.1", "10.0.0.2")
    await cluster.create("second", 80, 8080)
    await cluster.event("second", "SyncLoadBalancerFailed", "port 80/TCP is already used by Service default/first")
    assert await cluster.addresses("second") == []
    assert "<pending>" in (await cluster.server.kubectl("get", "service", "second")).stdout
    await cluster.server.kubectl("delete", "service", "first", "--timeout=60s")
    await cluster.serves("second", "10.0.0.1", "10.0.0.2")


async def test_a_service_that_is_no_load_balancer_any_more_loses_address_and_finalizer(cluster: Cluster) -> None:
    await cluster.create("web", 80)
    await cluster.serves("web", "10.0.0.1", "10.0.0.2")
    await cluster.server.kubectl("patch", "service", "web", "-p", '{"spec":{"type":"ClusterIP"}}')
    await cluster.serves("web")

    async def let_go() -> bool:
        return FINALIZER not in (await cluster.get("web")).metadata.finalizers

    await eventually(let_go)
    await cluster.event("web", "DeletedLoadBalancer", "Deleted load balancer")


async def test_ports_of_the_nodes_and_other_classes_are_left_alone(cluster: Cluster) -> None:
    await cluster.create("ssh", 22)
    await cluster.event("ssh", "SyncLoadBalancerFailed", "port 22/TCP is that of ssh on the nodes")
    await cluster.create("mail", 25)
    why = "port 25/TCP is not one of the ports of load balancers, 80,443,1024-29999"
    await cluster.event("mail", "SyncLoadBalancerFailed", why)
    await cluster.create("theirs", 8081, load_balancer_class="example.com/lb")
    await cluster.create("ours", 8081)
    await cluster.serves("ours", "10.0.0.1", "10.0.0.2")
    assert await cluster.addresses("theirs") == []
    assert (await cluster.get("theirs")).metadata.finalizers == []


async def test_a_host_port_belongs_to_its_pod_and_a_service_in_front_of_it(cluster: Cluster) -> None:
    await eventually(lambda: cluster.client.get(core_v1.ServiceAccount, "default", "default"))
    port = core_v1.ContainerPort(container_port=80, host_port=8080)
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="cache", namespace="default", labels={"app": "cache"}),
        spec=core_v1.PodSpec(node_name="n2", containers=[core_v1.Container(name="c", image="web", ports=[port])]),
    )
    await cluster.client.create(pod)
    await cluster.pod_runs("cache")
    await cluster.create("web", 8080)
    await cluster.event("web", "SyncLoadBalancerFailed", "port 8080/TCP is a host port of Pod default/cache")
    assert await cluster.addresses("web") == []
    await cluster.client.delete(core_v1.Service, "web", "default")
    await cluster.create("cache", 8080)
    await cluster.serves("cache", "10.0.0.1", "10.0.0.2")
    await cluster.client.delete(core_v1.Service, "cache", "default")
    await cluster.create("other", 8080)
    await cluster.event("other", "SyncLoadBalancerFailed", "port 8080/TCP is a host port of Pod default/cache")
    await cluster.client.delete(core_v1.Pod, "cache", "default", grace_period_seconds=0)
    await cluster.serves("other", "10.0.0.1", "10.0.0.2")


async def test_under_the_policy_local_only_nodes_with_endpoints_serve(cluster: Cluster) -> None:
    await cluster.create("web", 80, external_traffic_policy="Local")
    await cluster.event("web", "UnAvailableLoadBalancer", "no available nodes")
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="web-1", namespace="default", labels={"app": "web"}),
        spec=core_v1.PodSpec(node_name="n2", containers=[core_v1.Container(name="c", image="web")]),
    )
    await eventually(lambda: cluster.client.get(core_v1.ServiceAccount, "default", "default"))
    await cluster.client.create(pod)
    await cluster.serves("web", "10.0.0.2")
    await cluster.client.delete(core_v1.Pod, "web-1", "default")
    await cluster.serves("web")


async def test_switched_off_it_lets_go_of_what_it_gave(tmp_path: Path) -> None:
    async with api_server(tmp_path, enable_controllers=False, enable_scheduler=False) as server:
        client = server.client()
        made = Cluster(server, client, HollowNodes(client))
        await made.node("n1", "10.0.0.1")
        async with running(server.controllers()):
            await made.create("web", 80)
            await made.serves("web", "10.0.0.1")
        async with running(server.controllers(manager.ControllerConfig(service_load_balancer=False))):
            await made.serves("web")
            await made.create("other", 8081)
            await made.server.kubectl("delete", "service", "web", "--timeout=60s")
            assert await made.addresses("other") == []


async def test_a_node_adds_no_address_of_others_to_load_balancers(cluster: Cluster) -> None:
    await cluster.create("web", 80)
    await cluster.serves("web", "10.0.0.1", "10.0.0.2")
    await cluster.node("evil", "10.0.0.66")
    await cluster.serves("web", "10.0.0.1", "10.0.0.2", "10.0.0.66")
    for number, address in enumerate(("10.96.0.1", "::ffff:1.2.3.4", "10.244.1.7", "10.0.0.1")):
        patch = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        await cluster.client.patch(core_v1.Node, "evil", "", patch, subresource="status")
        await cluster.serves("web", "10.0.0.1", "10.0.0.2")
        await cluster.create(f"later-{number}", 8000 + number)
        await cluster.serves(f"later-{number}", "10.0.0.1", "10.0.0.2")
    patch["status"]["addresses"][0]["address"] = "10.0.0.66"
    await cluster.client.patch(core_v1.Node, "evil", "", patch, subresource="status")
    await cluster.serves("web", "10.0.0.1", "10.0.0.2", "10.0.0.66")


async def test_a_node_takes_no_port_by_naming_it_as_its_kubelets(cluster: Cluster) -> None:
    await cluster.create("first", 80)
    await cluster.serves("first", "10.0.0.1", "10.0.0.2")
    for port in (80, 8080):
        patch = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
        await cluster.client.patch(core_v1.Node, "n2", "", patch, subresource="status")
    await cluster.create("second", 8080)
    await cluster.serves("second", "10.0.0.1")
    patch["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = 10250
    await cluster.client.patch(core_v1.Node, "n2", "", patch, subresource="status")
    await cluster.serves("second", "10.0.0.1", "10.0.0.2")
    assert await cluster.addresses("first") == ["10.0.0.1", "10.0.0.2"]


async def test_a_deleted_service_that_is_kept_by_its_owner_is_served_no_more(cluster: Cluster) -> None:
    await cluster.create("first", 80)
    await cluster.serves("first", "10.0.0.1", "10.0.0.2")
    kept = {"metadata": {"finalizers": ["x.io/y"]}}
    await cluster.client.patch(core_v1.Service, "first", "default", kept)
    await cluster.client.delete(core_v1.Service, "first", "default")
    await cluster.serves("first")
    await cluster.create("second", 80)
    await cluster.serves("second", "10.0.0.1", "10.0.0.2")
    assert await cluster.addresses("first") == []
    await cluster.client.patch(core_v1.Service, "first", "default", {"metadata": {"finalizers": None}})


async def test_the_cleanup_finalizer_is_added_again(cluster: Cluster) -> None:
    await cluster.create("web", 80)
    await cluster.serves("web", "10.0.0.1", "10.0.0.2")
    await cluster.client.patch(core_v1.Service, "web", "default", {"metadata": {"finalizers": None}})

    async def added() -> bool:
        return FINALIZER in (await cluster.get("web")).metadata.finalizers

    await eventually(added)


async def test_the_ports_of_a_service_without_an_address_are_recorded_where_its_owner_does_not_write(
    cluster: Cluster,
) -> None:
    await cluster.create("web", 80)
    await cluster.serves("web", "10.0.0.1", "10.0.0.2")
    excluded = "node.kubernetes.io/exclude-from-external-load-balancers"
    for value in ("true", None):
        forged = {"type": TYPE, "status": "True", "reason": "Reserved", "message": "TCP 80-443"}
        await cluster.client.patch(core_v1.Service, "web", "default", {"status": {"conditions": [forged]}})
        for node in ("n1", "n2"):
            await cluster.client.patch(core_v1.Node, node, "", {"metadata": {"labels": {excluded: value}}})
        await cluster.serves("web", *() if value else ("10.0.0.1", "10.0.0.2"))
        messages = [each.message for each in (await cluster.get("web")).status.conditions]
        assert messages == (["TCP 80"] if value else [])
