"""Host ports of pods and load balancers: pods that do not run, and nodes, take no ports from Services."""

from __future__ import annotations

from control.controllers.service_lb import ServiceLoadBalancerController
from control.controllers.service_lb.host_ports import MIRROR, host_ports_of
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock, settle
from tests.support.load_balancer_api import LoadBalancerAPI
from tests.support.working import working

A, B = "192.0.2.1", "192.0.2.2"


def pod(key: str, node: str, *ports: int, phase: str = "Running", mirror: bool = False) -> core_v1.Pod:
    namespace, _, name = key.partition("/")
    listed = [core_v1.ContainerPort(container_port=each, host_port=each, protocol="TCP") for each in ports]
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(
            name=name, namespace=namespace, labels={"app": name}, annotations={MIRROR: "x"} if mirror else {}
        ),
        spec=core_v1.PodSpec(node_name=node, containers=[core_v1.Container(name="c", ports=listed)]),
        status=core_v1.PodStatus(phase=phase),
    )


async def test_a_host_port_reserves_it_only_while_its_pod_runs() -> None:
    api = LoadBalancerAPI()
    api.node("a", A)
    api.node("b", B)
    api.put(pod("evil/p", "a", 443, phase="Pending"))
    api.put(pod("other/p", "a", 8443))
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443)
        api.service("shop/other", 8443)
        await settle(100)
        assert (api.addresses("shop/web"), api.addresses("shop/other")) == ([A, B], [])
        assert api.events[-1][2].endswith("port 8443/TCP is a host port of a Pod in another namespace")
        api.put(pod("evil/p", "a", 443))
        api.put(pod("other/p", "a", 8443, phase="Succeeded"))
        await settle(100)
        assert (api.addresses("shop/web"), api.addresses("shop/other")) == ([A, B], [A, B])


async def test_mirror_pods_withhold_only_their_own_nodes_address_and_while_they_run() -> None:
    api = LoadBalancerAPI()
    api.node("good", A)
    api.node("evil", B)
    api.service("shop/first", 80)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        made = pod("kube-system/m", "evil", 80, 443, mirror=True)
        api.put(made)
        await settle(100)
        api.service("shop/web", 443)
        api.service("kube-system/m", 8080)
        await settle(100)
        assert (api.addresses("shop/first"), api.addresses("shop/web")) == ([A, B], [A])
        api.remove(made)
        await settle(100)
        assert api.addresses("shop/web") == [A, B]


async def test_a_port_that_mirror_pods_of_all_nodes_have_is_refused_but_not_to_the_service_in_front_of_them() -> None:
    api = LoadBalancerAPI()
    for name, address in (("a", A), ("b", B)):
        api.node(name, address)
        api.put(pod(f"kube-system/{name}", name, 8443, mirror=True))
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 8443)
        await settle(100)
        assert api.addresses("shop/web") == []
        assert api.events[-1][2].endswith(f"port 8443/TCP at {A} is a host port of a Pod in another namespace")
        await api.delete_service("shop/web")
        api.service("kube-system/a", 8443)
        await settle(100)
        assert api.addresses("kube-system/a") == [A], "the other one is not behind it"


def test_host_ports_are_those_of_init_and_other_containers_of_pods_that_run() -> None:
    def container(*ports: core_v1.ContainerPort) -> core_v1.Container:
        return core_v1.Container(name="c", ports=list(ports))

    pod = core_v1.Pod(
        spec=core_v1.PodSpec(
            init_containers=[container(core_v1.ContainerPort(container_port=1, host_port=8080))],
            containers=[
                container(
                    core_v1.ContainerPort(container_port=2, host_port=8081, protocol="UDP"),
                    core_v1.ContainerPort(container_port=3),
                )
            ],
        )
    )
    pod.status.phase = "Running"
    assert host_ports_of(pod) == [], "it is on no node"
    pod.spec.node_name = "n1"
    assert host_ports_of(pod) == [("TCP", 8080), ("UDP", 8081)]
    pod.status.phase = "Succeeded"
    assert host_ports_of(pod) == []
    pod.status.phase = "Pending"
    assert host_ports_of(pod) == [], "its image may not exist"
    running = core_v1.ContainerState(running=core_v1.ContainerStateRunning())
    pod.status.init_container_statuses = [core_v1.ContainerStatus(name="c", state=running)]
    assert host_ports_of(pod) == [("TCP", 8080), ("UDP", 8081)]
