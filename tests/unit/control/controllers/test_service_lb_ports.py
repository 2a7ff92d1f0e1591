"""Ports of load balancers against Nodes' statuses, which one node writes about itself."""

from __future__ import annotations

from control.controllers.service_lb import ServiceLoadBalancerController, plan
from control.controllers.service_lb.plan import FINALIZER
from tests.support.clock import FakeClock, settle
from tests.support.load_balancer_api import LoadBalancerAPI
from tests.support.working import working

KUBELET = "port 443/TCP is that of the kubelet on the nodes"


async def test_a_node_that_names_a_port_as_its_kubelets_takes_it_from_no_service() -> None:
    api = LoadBalancerAPI()
    api.node("good", "192.0.2.1")
    api.node("evil", "192.0.2.66")
    api.service("shop/web", 443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.66"]
        for port in (443, 80):
            api.node("evil", "192.0.2.66", kubelet=port)
            await settle(100)
            assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.66"], "the Service had the port before"
        api.node("evil", "192.0.2.66", kubelet=443)
        api.service("late/other", 80)
        await settle(100)
        assert api.addresses("late/other") == ["192.0.2.1", "192.0.2.66"]
    assert "SyncLoadBalancerFailed" not in api.reasons("shop")


async def test_a_kubelets_port_withholds_only_its_own_nodes_address_and_while_the_node_has_it() -> None:
    api = LoadBalancerAPI()
    api.node("good", "192.0.2.1")
    api.node("evil", "192.0.2.66", kubelet=443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443)
        api.service("shop/udp", 8443)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1"]
        assert api.addresses("shop/udp") == ["192.0.2.1", "192.0.2.66"]
        api.node("evil", "192.0.2.66")
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.66"]


async def test_a_port_that_the_kubelets_of_all_nodes_have_is_refused_until_one_goes() -> None:
    api = LoadBalancerAPI()
    api.node("a", "192.0.2.1", kubelet=443)
    b = api.node("b", "192.0.2.2", kubelet=443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443)
        await settle(100)
        assert api.addresses("shop/web") == []
        assert KUBELET in api.events[-1][2]
        api.remove(b)
        api.node("b", "192.0.2.2")
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.2"]


async def test_changes_of_a_kubelets_port_are_not_accumulated() -> None:
    api = LoadBalancerAPI()
    api.node("good", "192.0.2.1")
    made: list[ServiceLoadBalancerController] = []
    async with working(api, FakeClock(), lambda c: made.append(ServiceLoadBalancerController(c)) or made[0]):  # type: ignore[func-returns-value]
        before = _size(made[0])
        for port in range(1024, 1324):
            api.node("evil", "192.0.2.66", kubelet=port)
        await settle(100)
        api.node("evil", "192.0.2.66")
        await settle(100)
        after = _size(made[0])
        assert after - before < 50, (before, after)


async def test_a_service_that_is_refused_gives_its_port_up_only_when_its_status_is_cleared() -> None:
    api = LoadBalancerAPI()
    api.node("a", "192.0.2.1")
    api.service("shop/web", 443)
    api.service("evil/web", 8443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.refusing.add("evil/web")
        api.service("evil/web", 443, 9443, given=("192.0.2.1",), finalizers=(FINALIZER,))
        await settle(100)
        for port in (8443, 9443):
            api.service(f"late/p{port}", port)
        await settle(100)
        assert api.addresses("evil/web") == ["192.0.2.1"], "the status could not be cleared"
        assert api.addresses("late/p8443") == api.addresses("late/p9443") == []
        assert "EnsuredLoadBalancer" not in api.reasons("late")
        api.refusing.clear()
        api.change("evil/web", labels={"again": "1"})
        await settle(200)
        assert api.addresses("evil/web") == []
        assert api.addresses("late/p8443") == api.addresses("late/p9443") == ["192.0.2.1"]


def _size(controller: ServiceLoadBalancerController) -> int:
    """Return the number of entries of the controller's own collections."""
    parts = [controller, *vars(controller).values()]
    own = [each for each in parts if type(each).__module__.startswith("control.controllers.service_lb")]
    return sum(len(value) for each in own for value in vars(each).values() if isinstance(value, (dict, set, list)))


async def test_each_address_lists_the_ports_that_the_service_was_granted() -> None:
    """The proxies serve no others: a Service's owner adds ports, such as node ports of others, before they are refused."""
    api = LoadBalancerAPI()
    api.node("a", "192.0.2.1")
    api.node("b", "192.0.2.2")
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443, 80)
        await settle(100)
        assert api.ports("shop/web") == [[("TCP", 80), ("TCP", 443)]] * 2
        api.service("shop/web", 443, 8080, given=("192.0.2.1", "192.0.2.2"))
        await settle(100)
        assert api.ports("shop/web") == [[("TCP", 443), ("TCP", 8080)]] * 2
        api.service("shop/web", 443, 30443, given=("192.0.2.1", "192.0.2.2"))
        await settle(100)
        assert api.ports("shop/web") == [[("TCP", 443)]] * 2


def test_a_status_lists_no_more_ports_than_fit_and_addresses_of_each_family() -> None:
    addresses = [f"10.0.{number // 250}.{number % 250}" for number in range(1000)]
    assert plan.listable(addresses, 8) == addresses
    assert plan.listable(addresses, 80) == addresses[:102]
    assert plan.listable(addresses, 100_000) == addresses[:1]
    both = [*addresses, *(f"fd00::{number:x}" for number in range(1000))]
    found = plan.listable(both, 80)
    assert found == [*addresses[:51], *both[1000:1051]]
    assert plan.listable([], 80) == [] and plan.listable(addresses[:2], 0) == addresses[:2]
