"""Node addresses of a load balancer, and the assignment of its ports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from control.controllers.context import Context
from control.controllers.service_lb import plan, port_claims
from control.controllers.service_lb.host_ports import HostPorts
from control.controllers.service_lb.node_addresses import NodeAddresses
from control.controllers.service_lb.plan import EXCLUDED, FINALIZER, NodeAddress, NoLoadBalancer
from control.controllers.service_lb.ports import LoadBalancerPorts, Port, node_ports_of, ports_of
from control.controllers.step_counter import STEPS_PER_ITERATION
from kube.api import core_v1, discovery_v1, meta_v1
from kube.port_ranges import PortRanges
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI


def node(name: str, *addresses: str, ready: str = "True", deleting: bool = False, **labels: str) -> core_v1.Node:
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(
            name=name, labels=labels, deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None
        ),
        status=core_v1.NodeStatus(
            conditions=[core_v1.NodeCondition(type="Ready", status=ready)],
            addresses=[core_v1.NodeAddress(type="InternalIP", address=each) for each in addresses],
        ),
    )


def service(*given: str, finalizer: bool = True, **spec: object) -> core_v1.Service:
    spec = {"type": "LoadBalancer", "ports": [core_v1.ServicePort(port=80)], "ip_families": ["IPv4"]} | spec
    return core_v1.Service(
        metadata=meta_v1.ObjectMeta(name="web", namespace="default", finalizers=[FINALIZER] if finalizer else []),
        spec=core_v1.ServiceSpec(**spec),  # type: ignore[arg-type]
        status=core_v1.ServiceStatus(
            load_balancer=core_v1.LoadBalancerStatus(ingress=[core_v1.LoadBalancerIngress(ip=ip) for ip in given])
        ),
    )


def slice_on(*nodes: str, ready: bool | None = True) -> discovery_v1.EndpointSlice:
    conditions = discovery_v1.EndpointConditions(ready=ready)
    endpoints = [
        discovery_v1.Endpoint(addresses=["10.244.0.9"], node_name=name, conditions=conditions) for name in nodes
    ]
    return discovery_v1.EndpointSlice(address_type="IPv4", endpoints=endpoints)


def with_ports(found: core_v1.Service) -> tuple[core_v1.Service, list[Port]]:
    return found, ports_of(found)


NODES = [
    node("a", "10.0.0.10", "fd99::10"),
    node("b", "10.0.0.2", "fd99::2"),
    node("silent", "10.0.0.3", ready="Unknown"),
    node("sick", "10.0.0.4", ready="False"),
    node("leaving", "10.0.0.5", deleting=True),
    node("apart", "10.0.0.6", **{EXCLUDED: ""}),
    node("new"),
]


def serving() -> Sequence[NodeAddress]:
    nodes = Context(LaggingAPI().client(), FakeClock()).informers.of(core_v1.Node)
    for each in NODES:
        nodes._set(str(each.metadata.name), each)
    return NodeAddresses(nodes).serving()


@pytest.mark.parametrize(
    ("spec", "slices", "addresses"),
    [
        ({}, [], ["10.0.0.2", "10.0.0.10"]),
        ({"ip_families": ["IPv6"]}, [], ["fd99::2", "fd99::10"]),
        ({"ip_families": ["IPv6", "IPv4"]}, [], ["fd99::2", "fd99::10", "10.0.0.2", "10.0.0.10"]),
        ({"ip_families": [], "cluster_ip": "fd00::1"}, [], ["fd99::2", "fd99::10"]),
        ({"external_traffic_policy": "Cluster"}, [slice_on("a")], ["10.0.0.2", "10.0.0.10"]),
        ({"external_traffic_policy": "Local"}, [slice_on("a")], ["10.0.0.10"]),
        ({"external_traffic_policy": "Local"}, [slice_on("a"), slice_on("b", "silent")], ["10.0.0.2", "10.0.0.10"]),
        ({"external_traffic_policy": "Local"}, [slice_on("a", ready=False)], []),
        ({"external_traffic_policy": "Local"}, [slice_on("a", ready=None)], ["10.0.0.10"]),
        ({"external_traffic_policy": "Local"}, [], []),
        ({"load_balancer_ip": "10.0.0.2"}, [], ["10.0.0.2"]),
    ],
)
def test_addresses_are_those_of_nodes_that_can_take_traffic(
    spec: dict[str, object], slices: list[discovery_v1.EndpointSlice], addresses: list[str]
) -> None:
    assert [each.text for each in plan.balancer_addresses(service(**spec), serving(), slices)] == addresses


def test_an_address_that_no_node_has_is_refused() -> None:
    with pytest.raises(NoLoadBalancer, match=r"the address 10\.0\.0\.6 is not one of an available node"):
        plan.balancer_addresses(service(load_balancer_ip="10.0.0.6"), serving(), [])


def test_a_service_with_a_class_or_of_another_type_is_not_ours() -> None:
    assert plan.wanted(service())
    assert not plan.wanted(service(load_balancer_class="example.com/other"))
    assert not plan.wanted(service(type="NodePort"))


def test_only_nodes_addresses_with_our_finalizer_are_taken_back_when_switched_off() -> None:
    assert plan.ours(service("10.0.0.2", "10.0.0.4"), NODES)
    assert not plan.ours(service("203.0.113.1"), NODES)
    assert not plan.ours(service("10.0.0.2", "203.0.113.1", "203.0.113.2"), NODES)
    # A node that changed its address meanwhile does not keep the Service.
    assert plan.ours(service("10.0.0.2", "203.0.113.1"), NODES)
    assert plan.ours(service("10.0.0.2", "10.0.0.10", "203.0.113.1"), NODES)
    assert not plan.ours(service("10.0.0.2", finalizer=False), NODES)
    assert not plan.ours(service(), NODES)


def test_the_first_holds_a_port_until_it_lets_go() -> None:
    ledger = LoadBalancerPorts({})
    ledger.claim("default/one", [("TCP", 80), ("TCP", 443)], {})
    with pytest.raises(NoLoadBalancer, match=r"port 443/TCP is already used by Service default/one"):
        ledger.claim("default/two", [("TCP", 443), ("TCP", 8443)], {})
    # Nothing of a refused claim stays, and UDP is another port.
    ledger.claim("default/three", [("TCP", 8443), ("UDP", 443)], {})
    ledger.claim("default/one", [("TCP", 80)], {})
    ledger.claim("default/two", [("TCP", 443)], {})
    assert ledger.release("default/two") == {("TCP", 443)}
    assert ledger.release("default/two") == frozenset()


def test_a_claim_that_is_refused_keeps_what_was_held() -> None:
    ledger = LoadBalancerPorts({("TCP", 22): "ssh"})
    ledger.claim("default/one", [("TCP", 80)], {})
    with pytest.raises(NoLoadBalancer, match=r"port 22/TCP is that of ssh on the nodes"):
        ledger.claim("default/one", [("TCP", 80), ("TCP", 22)], {})
    with pytest.raises(NoLoadBalancer, match=r"port 80/TCP is already used by Service default/one"):
        ledger.claim("default/two", [("TCP", 80)], {})
    assert ledger.release("default/one") == {("TCP", 80)}
    ledger.claim("default/two", [("TCP", 80)], {})


def test_ports_that_a_service_still_serves_are_kept_for_it_if_nobody_has_them() -> None:
    ledger = LoadBalancerPorts({})
    ledger.claim("default/one", [("TCP", 80)], {})
    ledger.claim("default/two", [("TCP", 443)], {})
    ledger.keep("default/one", [("TCP", 443), ("TCP", 8443)])
    assert ledger.release("default/one") == {("TCP", 80), ("TCP", 8443)}


@pytest.mark.parametrize("number", [1, 25, 53, 111, 1023, 30000, 32768, 65535])
def test_ports_of_the_system_and_those_that_are_taken_at_random_are_not_given_out(number: int) -> None:
    ledger = LoadBalancerPorts()
    why = rf"^port {number}/TCP is not one of the ports of load balancers, 80,443,1024-29999$"
    with pytest.raises(NoLoadBalancer, match=why):
        ledger.claim("default/one", [("TCP", 80), ("TCP", number)], {})
    ledger.claim("default/two", [("TCP", 80), ("TCP", 443), ("TCP", 1024), ("TCP", 29999)], {})
    LoadBalancerPorts({}, PortRanges.parse("25,30000-65535")).claim("default/one", [("TCP", 25), ("UDP", 65535)], {})


def test_host_ports_of_pods_are_left_to_them_but_not_taken_from_who_has_them() -> None:
    ledger = LoadBalancerPorts({})
    port = ("TCP", 8080)
    with pytest.raises(NoLoadBalancer, match=r"port 8080/TCP is a host port of Pod shop/cache"):
        ledger.claim("shop/one", [port], {}, {port: ["shop/cache"]})
    with pytest.raises(NoLoadBalancer, match=r"port 8080/TCP is a host port of a Pod in another namespace$"):
        ledger.claim("default/one", [port], {}, {port: ["shop/cache"]})
    ledger.claim("default/one", [port], {})
    ledger.claim("default/one", [port], {}, {port: ["shop/cache"]})
    with pytest.raises(NoLoadBalancer, match=r"port 8081/TCP is a host port of a Pod in another namespace$"):
        ledger.claim("default/one", [port, ("TCP", 8081)], {}, {("TCP", 8081): ["shop/cache"]})


def test_node_ports_of_other_services_are_left_to_them() -> None:
    ledger = LoadBalancerPorts({}, PortRanges.parse("1-65535"))
    port = ("TCP", 30080)
    with pytest.raises(NoLoadBalancer, match=r"port 30080/TCP is the node port of Service default/other"):
        ledger.claim("default/one", [port], {port: ["default/other"]})
    ledger.claim("default/one", [port], {port: ["default/one"]})
    # It is not taken from a Service that has it.
    ledger.claim("default/one", [port], {port: ["default/other"]})


def test_a_services_ports_are_read() -> None:
    made = service(
        ports=[core_v1.ServicePort(port=53, protocol="UDP", node_port=30053), core_v1.ServicePort(port=80)],
        health_check_node_port=30099,
    )
    assert ports_of(made) == [("UDP", 53), ("TCP", 80)]
    assert node_ports_of(made) == [("UDP", 30053), ("TCP", 30099)]


async def test_a_pod_is_compared_once_with_a_service_whatever_the_number_of_its_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []
    monkeypatch.setattr(
        port_claims,
        "is_behind",
        lambda pod, service: (compared.append(pod.metadata.name), pod.metadata.name == "own")[1],
    )
    context = Context(LaggingAPI().client(), FakeClock())
    services, pods = context.informers.of(core_v1.Service), context.informers.of(core_v1.Pod)
    claims = port_claims.PortClaims(services, HostPorts(pods), LoadBalancerPorts())
    numbers = range(8000, 8004)
    for name in ("own", "other"):
        ports = [core_v1.ContainerPort(container_port=1, host_port=number) for number in numbers]
        found = core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
            spec=core_v1.PodSpec(node_name="n", containers=[core_v1.Container(name="c", ports=ports)]),
            status=core_v1.PodStatus(phase="Running"),
        )
        pods._set(f"default/{name}", found)
    wide = service(ports=[core_v1.ServicePort(port=number) for number in numbers], selector={"a": "b"})
    with pytest.raises(NoLoadBalancer, match="default/other"):
        await claims.claim("default/web", *with_ports(wide))
    assert sorted(compared) == ["other", "own"]


async def test_ports_are_compared_with_others_only_until_one_is_refused_and_only_while_they_are_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context(LaggingAPI().client(), FakeClock())
    services, pods = context.informers.of(core_v1.Service), context.informers.of(core_v1.Pod)
    ports = LoadBalancerPorts({})
    claims = port_claims.PortClaims(services, HostPorts(pods), ports)
    found: list[str] = []
    known = services.by_index
    monkeypatch.setattr(services, "by_index", lambda index, value: (found.append(value), known(index, value))[1])
    many = [core_v1.ServicePort(port=number) for number in range(2000, 3000)]
    ports.claim("default/other", [("TCP", 2002)], {})
    with pytest.raises(NoLoadBalancer, match="2002/TCP is already used by Service default/other"):
        await claims.claim("default/web", *with_ports(service(ports=many)))
    assert found == ["TCP/2000", "TCP/2001"]
    ports.release("default/other")
    await claims.claim("default/web", *with_ports(service(ports=many)))
    found.clear()
    await claims.claim("default/web", *with_ports(service(ports=many)))
    await claims.claim("default/web", *with_ports(service(ports=[*many, core_v1.ServicePort(port=80)])))
    assert found == ["TCP/80"]


@pytest.mark.parametrize("label", ["own", "other"])
async def test_every_pod_with_a_host_port_is_a_step_and_none_is_compared_after_a_port_that_is_refused(
    monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    context = Context(LaggingAPI().client(), FakeClock())
    services, pods = context.informers.of(core_v1.Service), context.informers.of(core_v1.Pod)
    claims = port_claims.PortClaims(services, HostPorts(pods), LoadBalancerPorts())
    numbers, nodes = range(8000, 8040), 100
    ports = [core_v1.ContainerPort(container_port=1, host_port=number) for number in numbers]
    for number in range(nodes):
        found = core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name=f"p{number}", namespace="default", labels={"a": label}),
            spec=core_v1.PodSpec(node_name=f"n{number}", containers=[core_v1.Container(name="c", ports=ports)]),
            status=core_v1.PodStatus(phase="Running"),
        )
        pods._set(f"default/p{number}", found)
    compared: list[str] = []
    known = pods.by_index
    monkeypatch.setattr(pods, "by_index", lambda index, value: (compared.append(value), known(index, value))[1])
    wide = service(ports=[core_v1.ServicePort(port=number) for number in numbers], selector={"a": "own"})
    claiming = asyncio.create_task(claims.claim("default/web", *with_ports(wide)))
    iterations = 0
    while not claiming.done():
        iterations += 1
        await asyncio.sleep(0)
    if label == "own":
        assert len(await claiming) == 0 and len(compared) == len(numbers)
        assert iterations >= len(numbers) * nodes // STEPS_PER_ITERATION
    else:
        with pytest.raises(NoLoadBalancer, match="8000/TCP is a host port of Pod default/p0"):
            await claiming
        assert compared == ["TCP/8000"]
