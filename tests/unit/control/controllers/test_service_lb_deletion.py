"""Load balancers of Services that are being deleted, and of owners who change the finalizers."""

from __future__ import annotations

import pytest

from control.controllers.service_lb import ServiceLoadBalancerController
from control.controllers.service_lb.plan import FINALIZER
from tests.support.clock import FakeClock, settle
from tests.support.load_balancer_api import LoadBalancerAPI
from tests.support.working import working

NODE = "192.0.2.1"


async def zombie(api: LoadBalancerAPI, *finalizers: str) -> None:
    """Have evil/web served, then deleted with these finalizers."""
    api.service("evil/web", 443)
    await settle(100)
    assert api.addresses("evil/web") == [NODE]
    api.hold_services()
    api.change("evil/web", finalizers=list(finalizers))
    await api.delete_service("evil/web")
    api.release_services()
    await settle(200)


@pytest.mark.parametrize("finalizers", [("x.io/y",), (FINALIZER, "x.io/y"), ("x.io/y", FINALIZER)])
async def test_a_deleted_service_loses_its_addresses_whatever_finalizers_it_has(finalizers: tuple[str, ...]) -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        await zombie(api, *finalizers)
        assert api.addresses("evil/web") == []
        assert api.finalizers("evil/web") == ["x.io/y"]
        api.service("shop/web", 443)
        await settle(100)
        assert api.addresses("shop/web") == [NODE]
        done = api.reasons("evil").count("DeletedLoadBalancer")
        api.node("b", "192.0.2.2")
        await settle(100)
        assert api.addresses("evil/web") == []
        assert api.reasons("evil").count("DeletedLoadBalancer") == done == 1


async def test_the_port_of_a_deleted_service_goes_to_no_other_until_the_status_is_cleared() -> None:
    api, clock = LoadBalancerAPI(), FakeClock()
    api.node("a", NODE)
    async with working(api, clock, ServiceLoadBalancerController):
        api.service("evil/web", 443)
        await settle(100)
        api.service("shop/web", 443)
        await settle(100)
        api.refusing.add("evil/web")
        api.change("evil/web", finalizers=["x.io/y"])
        await api.delete_service("evil/web")
        assert api.addresses("evil/web") == [NODE], "the status could not be cleared"
        assert api.addresses("shop/web") == []
        assert "EnsuredLoadBalancer" not in api.reasons("shop")
        api.refusing.clear()
        await clock.advance(60)
        await settle(200)
        assert api.addresses("evil/web") == []
        assert api.addresses("shop/web") == [NODE]


async def test_a_service_that_goes_gives_its_port_to_the_one_that_waits() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/first", 443)
        await settle(100)
        api.service("shop/second", 443)
        await settle(100)
        assert api.addresses("shop/second") == []
        await api.delete_service("shop/first")
        assert api.finalizers("shop/first") == []
        assert api.addresses("shop/second") == [NODE]


async def test_addresses_that_the_cache_does_not_show_yet_are_taken_back_before_the_port_is_released() -> None:
    api, clock = LoadBalancerAPI(), FakeClock()
    api.node("a", NODE)
    api.service("evil/web", 443, finalizers=(FINALIZER, "x.io/y"))
    api.service("shop/web", 443, created="2026-02-01T00:00:00Z")
    async with working(api, clock, ServiceLoadBalancerController):
        await settle(100)
        assert api.addresses("evil/web") == [NODE]
        api.patches.clear()
        # The last that the controller sees: the Service is being deleted and has no addresses.
        api.service("evil/web", 443, finalizers=("x.io/y",), deleted=True)
        await settle(200)
        assert api.patches[0][0] == "evil/web"
        assert api.patches[0][1]["status"] == {"loadBalancer": {"ingress": None}, "conditions": None}
        assert api.addresses("shop/web") == [NODE]


async def test_the_finalizer_that_a_user_removes_from_a_live_service_is_added_again() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443)
        await settle(100)
        assert api.finalizers("shop/web") == [FINALIZER]
        api.change("shop/web", finalizers=["x.io/y"])
        await settle(100)
        assert api.finalizers("shop/web") == ["x.io/y", FINALIZER]
        assert api.reasons("shop") == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


async def test_a_deleted_service_that_an_earlier_process_left_addresses_is_cleared_first() -> None:
    api, clock = LoadBalancerAPI(), FakeClock()
    api.node("a", NODE)
    api.service("evil/web", 443, given=(NODE,), finalizers=("x.io/y",), deleted=True)
    api.service("shop/web", 443, created="2026-02-01T00:00:00Z")
    api.refusing.add("evil/web")
    async with working(api, clock, ServiceLoadBalancerController):
        assert api.addresses("shop/web") == []
        api.refusing.clear()
        await clock.advance(60)
        await settle(200)
        assert api.addresses("evil/web") == []
        assert api.addresses("shop/web") == [NODE]


async def test_a_live_service_keeps_its_port_after_a_restart_from_one_that_is_being_deleted() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    api.service("evil/web", 443, given=(NODE,), finalizers=("x.io/y",), deleted=True)
    api.service("shop/web", 443, given=(NODE,), finalizers=(FINALIZER,), created="2026-02-01T00:00:00Z")
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        await settle(200)
        assert api.addresses("evil/web") == []
        assert api.addresses("shop/web") == [NODE]
        assert [patch for key, patch in api.patches if key == "shop/web"] == []


async def test_addresses_are_taken_back_from_a_service_that_gets_a_class_meanwhile() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("evil/web", 443)
        await settle(100)
        api.service("evil/web", 443, given=(NODE,), load_balancer_class="x.io/lb")
        api.service("shop/web", 443)
        await settle(200)
        assert api.addresses("evil/web") == []
        assert api.addresses("shop/web") == [NODE]
        api.service("evil/web", 443, given=("203.0.113.1",), load_balancer_class="x.io/lb")
        await settle(100)
        assert api.addresses("evil/web") == ["203.0.113.1"], "another controller gave it"


async def test_a_recreated_service_gets_no_addresses_that_were_meant_for_the_one_before() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443)
        await settle(100)
    assert all(patch["metadata"]["uid"] for _, patch in api.patches)


async def test_a_conflict_over_the_finalizer_does_not_keep_an_old_address_in_the_status() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("evil/web", 443)
        await settle(100)
        api.conflicting.add("evil/web")
        api.change("evil/web", finalizers=[])
        api.node("a", "192.0.2.7")
        await settle(100)
        assert api.finalizers("evil/web") == []
        assert api.addresses("evil/web") == ["192.0.2.7"]


async def test_a_service_of_a_class_keeps_its_addresses_though_the_one_before_had_ours() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    api.node("b", "192.0.2.2")
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443)
        await settle(100)
        api.hold_services()
        await api.delete_service("shop/web")
        api.change("shop/web", finalizers=[])
        api.remove_service("shop/web")
        api.service("shop/web", 443, given=("203.0.113.1",), load_balancer_class="x.io/lb", uid="another")
        api.release_services()
        await settle(200)
        assert api.addresses("shop/web") == ["203.0.113.1"]


async def test_after_a_restart_the_older_of_two_services_without_addresses_has_the_port() -> None:
    api = LoadBalancerAPI()
    api.node("a", NODE)
    api.service("late/web", 443, created="2026-02-01T00:00:00Z", external_traffic_policy="Local")
    api.service("shop/web", 443, finalizers=(FINALIZER,), external_traffic_policy="Local")
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.slice_on("late/web", "a")
        api.slice_on("shop/web", "a")
        await settle(100)
        assert api.addresses("shop/web") == [NODE]
        assert api.addresses("late/web") == []
