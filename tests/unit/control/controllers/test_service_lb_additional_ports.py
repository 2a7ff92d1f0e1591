"""Load balancers that ask for a port in addition to those that they have, or for several of which one is not free."""

from __future__ import annotations

from control.controllers.service_lb import ServiceLoadBalancerController
from control.controllers.service_lb.plan import FINALIZER
from kube.gateway.names import INGRESS, NAMESPACE, UID
from tests.support.clock import FakeClock, settle
from tests.support.load_balancer_api import LoadBalancerAPI
from tests.support.working import working

NODE = "192.0.2.1"
SHARED = f"{NAMESPACE}/ingress"
HTTP, HTTPS = ("TCP", 80), ("TCP", 443)


def shared(api: LoadBalancerAPI, *ports: int) -> None:
    """Create the Service of all Ingresses."""
    api.service(SHARED, *ports)
    api.change(SHARED, labels={UID: INGRESS})


async def test_a_service_that_asks_for_a_taken_port_keeps_those_that_it_has() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 80)
        await settle(100)
        api.service("evil/b", 443)
        api.service("evil/a", 80)
        await settle(100)
        api.ask("shop/web", 80, 443)
        await settle(100)
        assert api.ports("shop/web") == [[HTTP]], "the port that it cannot have is not listed, so nobody serves it"
        assert (api.ports("evil/b"), api.ports("evil/a")) == ([[HTTPS]], [])
        assert api.events[-1][2].endswith("port 443/TCP is already used by a Service in another namespace")
        before = len(api.events)
        api.change("shop/web", labels={"again": "1"})
        await settle(100)
        assert len(api.events) == before, "it is reported once"
        await api.delete_service("evil/b")
        assert api.ports("shop/web") == [[HTTP, HTTPS]]
        assert api.ports("evil/a") == []


async def test_ports_that_a_service_asks_for_no_more_are_free_although_another_one_is_refused() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 80, 8080)
        api.service("other/web", 443)
        await settle(100)
        api.service("other/late", 8080)
        await settle(100)
        assert api.ports("other/late") == []
        api.ask("shop/web", 80, 443)
        await settle(200)
        assert (api.ports("shop/web"), api.ports("other/late")) == ([[HTTP]], [[("TCP", 8080)]])
        api.ask("shop/web", 443)
        await settle(200)
        assert api.ports("shop/web") == [], "it keeps nothing of what it asks for"


async def test_a_restart_gives_a_service_no_port_that_it_waits_for() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("evil/old", 8080, created="2025-01-01T00:00:00Z")
        api.service("shop/web", 80)
        await settle(100)
        api.ask("evil/old", 80, 8080)
        await settle(100)
        assert (api.ports("evil/old"), api.ports("shop/web")) == ([[("TCP", 8080)]], [[HTTP]])
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        await settle(100)
        assert (api.ports("evil/old"), api.ports("shop/web")) == ([[("TCP", 8080)]], [[HTTP]])


async def test_ports_that_were_not_granted_but_are_served_are_kept_only_until_the_status_is_written() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    api.service("shop/web", 80, given=(NODE,), finalizers=(FINALIZER,))
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        await settle(100)
        api.refusing.add("shop/web")
        api.service("shop/web", 80, 22, 8080, given=(NODE,), finalizers=(FINALIZER,))
        await settle(100)
        api.service("other/web", 8080)
        await settle(100)
        assert api.ports("other/web") == []
        api.refusing.clear()
        api.change("shop/web", labels={"again": "1"})
        await settle(200)
        assert (api.ports("shop/web"), api.ports("other/web")) == ([[HTTP]], [[("TCP", 8080)]])


async def test_the_service_of_all_ingresses_gets_each_port_that_is_free() -> None:
    for taken, left in ((443, HTTP), (80, HTTPS)):
        api = LoadBalancerAPI()
        api.node("a", NODE)
        async with working(api, FakeClock(), ServiceLoadBalancerController):
            api.service("evil/web", taken)
            api.service("other/web", 8080)
            await settle(100)
            shared(api, 80, 443)
            api.service("other/pair", 8080, 8443)
            await settle(100)
            assert api.ports(SHARED) == [[left]]
            assert api.ports("other/pair") == [], "others get all of their ports at first, or none"
            await api.delete_service("evil/web")
            assert api.ports(SHARED) == [[HTTP, HTTPS]]
