"""Node addresses of load balancers: a kubelet's own is believed only if nobody else has it."""

from __future__ import annotations

from typing import Any

import pytest

from control.controllers.context import Context
from control.controllers.service_lb import ServiceLoadBalancerController
from control.controllers.service_lb.addition_limit import ADDITION_SECONDS, ADDITIONS
from control.controllers.service_lb.believed_addresses import IPRanges
from kube.api import core_v1
from kube.ip_addresses import network, reached
from tests.support.clock import FakeClock, settle
from tests.support.load_balancer_api import LoadBalancerAPI
from tests.support.working import working

YOUNG, YOUNGER = "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"
RANGES = ("10.244.0.0/16", "fd44::/48")


def balancer(context: Context) -> ServiceLoadBalancerController:
    return ServiceLoadBalancerController(context, pod_ranges=RANGES)


def world() -> LoadBalancerAPI:
    api = LoadBalancerAPI()
    api.service_range("kubernetes", "10.96.0.0/12", "fd96::/108")
    api.node("good", "192.0.2.1", "fd99::1", pod_cidrs=("10.244.0.0/24",))
    return api


@pytest.mark.parametrize(
    "addresses",
    [
        ["::ffff:1.2.3.4"],
        ["::ffff:102:304"],
        ["FD99::66"],
        ["fd99:0::66"],
        ["10.96.0.1"],
        ["10.111.255.254"],
        ["fd96::7"],
        ["10.244.7.7"],
        ["fd44::7"],
        ["172.31.0.7"],
        ["192.0.2.1"],
        ["fd99::1"],
        ["127.0.0.1"],
        ["169.254.169.254"],
        ["fe80::1"],
        ["224.0.0.1"],
        ["255.255.255.255"],
        ["0.0.0.0"],
        ["::1"],
        ["evil.example"],
        ["198.51.100.99"],
    ],
)
async def test_an_address_that_cannot_be_the_nodes_is_left_out_and_those_of_others_are_written(
    addresses: list[str],
) -> None:
    api = world()
    api.node("routed", "192.0.2.3", pod_cidrs=("172.31.0.0/24",))
    families = ["IPv4", "IPv6"]
    # An address of a range that is no ServiceCIDR any more.
    api.service("shop/old", 80, type="ClusterIP", cluster_ip="198.51.100.99", cluster_ips=["198.51.100.99"])
    async with working(api, FakeClock(), balancer):
        api.service("shop/web", 443, ip_families=families)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.3", "fd99::1"]
        api.node("evil", "192.0.2.66", created=YOUNG)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.3", "192.0.2.66", "fd99::1"]
        api.node("evil", *addresses, created=YOUNG)
        api.service("shop/late", 80, ip_families=families)
        await settle(100)
        assert api.addresses("shop/web") == api.addresses("shop/late") == ["192.0.2.1", "192.0.2.3", "fd99::1"]
        api.node("evil", "192.0.2.66", *addresses, created=YOUNG)
        await settle(100)
        assert api.addresses("shop/web")[:3] == ["192.0.2.1", "192.0.2.3", "192.0.2.66"]
    assert api.refused == []


async def test_the_older_of_two_nodes_has_an_address_and_a_node_that_is_not_ready_has_none() -> None:
    api = world()
    async with working(api, FakeClock(), balancer):
        api.service("shop/web", 443, external_traffic_policy="Local")
        api.slice_on("shop/web", "evil")
        api.node("evil", "192.0.2.1", created=YOUNG)
        await settle(100)
        assert api.addresses("shop/web") == [], "192.0.2.1 is that of the older node, which has no endpoint"
        # The machine was installed again with another name.
        api.node("good", "192.0.2.1", ready="Unknown")
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1"]


async def test_a_pod_range_takes_no_address_from_older_nodes() -> None:
    api = world()
    async with working(api, FakeClock(), balancer):
        api.service("shop/web", 443)
        api.node("evil", "198.51.100.66", created=YOUNG, pod_cidrs=("192.0.2.0/24",))
        api.node("new", "192.0.2.2", created=YOUNGER)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.2", "198.51.100.66"]


async def test_a_service_range_that_is_added_takes_effect() -> None:
    api = world()
    async with working(api, FakeClock(), balancer):
        api.service("shop/web", 443)
        api.node("evil", "198.51.100.66", created=YOUNG)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "198.51.100.66"]
        api.service_range("more", "198.51.100.0/24")
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1"]


async def test_a_node_whose_addresses_flap_causes_few_writes_and_only_removals_are_immediate() -> None:
    api, clock = world(), FakeClock()
    api.node("evil", "192.0.2.66", created=YOUNG)
    api.service("shop/web", 443)
    async with working(api, clock, balancer):
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.66"]
        api.patches.clear()
        for number in range(100, 150):
            api.node("evil", f"192.0.2.{number}", created=YOUNG)
            await settle(100)
            assert "192.0.2.66" not in api.addresses("shop/web")
            assert set(api.addresses("shop/web")) <= {"192.0.2.1", f"192.0.2.{number}"}
        assert len(api.patches) <= 2 * ADDITIONS
        assert api.addresses("shop/web") == ["192.0.2.1"]
        # Other nodes are not delayed by it.
        api.node("new", "192.0.2.2", created=YOUNGER)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.2"]
        await clock.advance(ADDITION_SECONDS)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.2", "192.0.2.149"]


async def test_a_service_is_reconciled_again_only_if_addresses_are_added_later() -> None:
    api, clock, made = world(), FakeClock(), list[ServiceLoadBalancerController]()

    def make(context: Context) -> ServiceLoadBalancerController:
        made.append(balancer(context))
        return made[0]

    api.service("shop/ssh", 22)
    async with working(api, clock, make):
        assert await made[0].reconcile("shop/ssh") is None, "its port is refused before addresses are read"
        api.service("shop/web", 443)
        await settle(100)
        assert await made[0].reconcile("shop/web") is None
        for number in range(ADDITIONS + 1):
            api.node("evil", f"192.0.2.{100 + number}", created=YOUNG)
            await settle(100)
        assert await made[0].reconcile("shop/web") == pytest.approx(ADDITION_SECONDS)
        assert await made[0].reconcile("shop/ssh") is None


async def test_a_node_that_is_recreated_has_no_more_changes() -> None:
    api, clock = world(), FakeClock()
    api.service("shop/web", 443)
    async with working(api, clock, balancer):
        for _ in range(20):
            evil = api.node("evil", "192.0.2.66", created=YOUNG)
            await settle(100)
            api.remove(evil)
            await settle(100)
        assert len(api.patches) <= 2 * ADDITIONS + 2, "the first writes are those of the Service itself"
        await clock.advance(ADDITION_SECONDS)
        api.node("evil", "192.0.2.66", created=YOUNG)
        await settle(100)
        assert api.addresses("shop/web") == ["192.0.2.1", "192.0.2.66"]


async def test_when_a_node_changes_its_address_all_statuses_lose_the_old_one() -> None:
    api = world()
    api.node("evil", "10.0.0.20", created=YOUNG)
    for name in ("web", "stuck"):
        api.service(f"evil/{name}", 5000 + len(name))
    async with working(api, FakeClock(), balancer):
        assert api.addresses("evil/web") == ["10.0.0.20", "192.0.2.1"]
        api.refusing.add("evil/stuck")
        api.change("evil/stuck", finalizers=["x.io/y"])
        await api.delete_service("evil/stuck")
        assert api.addresses("evil/stuck") == ["10.0.0.20", "192.0.2.1"]
        api.refusing.clear()
        api.node("evil", "192.0.2.66", created=YOUNG)
        await settle(100)
        assert api.addresses("evil/web") == ["192.0.2.1", "192.0.2.66"]
        assert api.addresses("evil/stuck") == []


@pytest.mark.parametrize(
    "other",
    [
        {"type": "ClusterIP", "external_ips": ["10.0.0.20"]},
        {"type": "LoadBalancer", "load_balancer_class": "x.io/lb", "given": ("10.0.0.20",)},
    ],
)
async def test_a_port_at_an_address_of_another_service_is_not_given_again(other: dict[str, Any]) -> None:
    api = world()
    async with working(api, FakeClock(), balancer):
        api.service("shop/registry", 5000, **other)
        api.service("evil/web", 5000)
        api.service("evil/other", 5001)
        api.node("evil", "10.0.0.20", created=YOUNG)
        await settle(100)
        assert api.addresses("evil/web") == ["192.0.2.1"]
        assert api.addresses("evil/other") == ["10.0.0.20", "192.0.2.1"]
        api.remove_service("shop/registry")
        await settle(100)
        assert api.addresses("evil/web") == ["10.0.0.20", "192.0.2.1"]
        # Who makes a Service takes nothing from one that has the address.
        api.service("shop/registry", 5000, **other)
        api.node("new", "192.0.2.2", created=YOUNG)
        await settle(100)
        assert api.addresses("evil/web") == ["10.0.0.20", "192.0.2.1", "192.0.2.2"]


async def test_switched_off_the_service_ranges_are_not_followed() -> None:
    context = Context(LoadBalancerAPI().client(), FakeClock())
    with context.informers.requested() as followed:
        ServiceLoadBalancerController(context, enabled=False)
    assert "ServiceCIDR" not in {each.kind.__name__ for each in followed}
    assert core_v1.Service in {each.kind for each in followed}


def test_a_lookup_in_ranges_costs_the_number_of_their_prefix_lengths() -> None:
    ranges = IPRanges()
    for number in range(1000):
        ranges.add(network(f"10.{number >> 8}.{number & 255}.0/24"))
    ranges.add(network("fd00::/48"))
    assert len(ranges) == 2
    assert reached("10.1.2.3") in ranges
    assert reached("10.4.0.1") not in ranges
    assert reached("fd00::1") in ranges
    assert reached("fd00:0:1::1") not in ranges
