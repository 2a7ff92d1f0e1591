"""Ports of load balancers without an address at the moment: other Services wait for them, also over a restart."""

from __future__ import annotations

from typing import Any

import pytest

from control.controllers.context import Context
from control.controllers.service_lb import ServiceLoadBalancerController, port_records
from control.controllers.service_lb.ports import Port
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock, settle
from tests.support.load_balancer_api import LoadBalancerAPI
from tests.support.working import working

A, B = "192.0.2.1", "192.0.2.2"
EARLIER, LATER = "2025-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


async def test_a_service_keeps_its_port_while_the_node_that_it_names_is_not_ready() -> None:
    api = LoadBalancerAPI()
    api.node("a", A)
    api.node("b", B)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443, load_balancer_ip=A)
        await settle(100)
        api.service("evil/web", 443, created=LATER)
        await settle(100)
        api.node("a", A, ready="Unknown")
        await settle(100)
        assert api.addresses("shop/web") == api.addresses("evil/web") == []
        assert api.events[-1][2].endswith(f"the address {A} is not one of an available node")
        api.node("a", A)
        await settle(200)
        assert (api.addresses("shop/web"), api.addresses("evil/web")) == ([A], [])


async def test_a_service_keeps_its_port_while_its_pod_is_on_another_node_than_the_one_that_it_names() -> None:
    api = LoadBalancerAPI()
    api.node("a", A)
    api.node("b", B)
    api.service("shop/web", 443, load_balancer_ip=A, external_traffic_policy="Local")
    api.slice_on("shop/web", "a")
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("evil/web", 443, created=LATER)
        await settle(100)
        for nodes in (["b"], ["a", "b"]):
            api.slice_on("shop/web", *nodes)
            await settle(100)
        assert (api.addresses("shop/web"), api.addresses("evil/web")) == ([A], [])


@pytest.mark.parametrize("spec", [{}, {"load_balancer_ip": A}, {"external_traffic_policy": "Local"}])
async def test_a_restart_gives_the_port_of_a_service_without_an_address_to_no_older_one(spec: dict[str, Any]) -> None:
    api = LoadBalancerAPI()
    api.node("a", A)
    api.service("shop/web", 443, **spec)
    api.slice_on("shop/web", "a")
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("evil/web", 443, created=EARLIER)
        await settle(100)
        assert (api.addresses("shop/web"), api.record("shop/web")) == ([A], [])
        api.node("a", A, ready="Unknown")
        api.slice_on("shop/web")
        await settle(100)
        assert (api.addresses("shop/web"), api.record("shop/web")) == ([], ["TCP 443"])
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.node("a", A)
        api.slice_on("shop/web", "a")
        await settle(200)
        assert (api.addresses("shop/web"), api.addresses("evil/web")) == ([A], [])
        assert api.record("shop/web") == api.record("evil/web") == [], "the address lists the port"


async def test_a_service_that_never_had_an_address_keeps_its_port_over_a_restart() -> None:
    api = LoadBalancerAPI()
    api.service("shop/web", 443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("evil/web", 443, created=EARLIER)
        await settle(100)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.node("a", A)
        await settle(200)
        assert (api.addresses("shop/web"), api.addresses("evil/web")) == ([A], [])


async def test_addresses_and_record_take_one_write() -> None:
    api = LoadBalancerAPI()
    api.node("a", A)
    api.service("shop/web", 443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        for ready in ("Unknown", "True"):
            api.patches.clear()
            api.node("a", A, ready=ready)
            await settle(100)
            assert [key for key, sent in api.patches if "status" in sent] == ["shop/web"]
        api.patches.clear()
        api.change("shop/web", labels={"again": "1"})
        await settle(100)
        assert api.patches == []


async def test_a_record_counts_only_for_ports_that_the_service_still_asks_for() -> None:
    api = LoadBalancerAPI()
    api.service("evil/web", 443, 8443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        assert api.record("evil/web") == ["TCP 443,8443"]
    api.ask("evil/web", 8443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        api.service("shop/web", 443)
        api.node("a", A)
        await settle(100)
        assert (api.addresses("shop/web"), api.addresses("evil/web")) == ([A], [A])


async def test_the_port_of_a_service_without_an_address_is_free_once_its_record_is_removed() -> None:
    api, clock = LoadBalancerAPI(), FakeClock()
    api.service("evil/web", 443)
    async with working(api, clock, ServiceLoadBalancerController):
        api.service("shop/web", 443)
        await settle(100)
        assert api.record("evil/web") == ["TCP 443"]
        api.refusing.add("evil/web")
        api.change("evil/web", finalizers=["x.io/y"])
        await api.delete_service("evil/web")
        assert (api.record("evil/web"), api.record("shop/web")) == (["TCP 443"], [])
        api.refusing.clear()
        await clock.advance(60)
        await settle(200)
        assert (api.record("evil/web"), api.record("shop/web")) == ([], ["TCP 443"])


async def test_disabled_the_controller_removes_the_records_but_not_another_load_balancers_addresses() -> None:
    api = LoadBalancerAPI()
    api.service("shop/web", 443)
    async with working(api, FakeClock(), ServiceLoadBalancerController):
        assert api.record("shop/web") == ["TCP 443"]
    found = api.read(core_v1.Service, "web", "shop")
    found.status.load_balancer = core_v1.LoadBalancerStatus(ingress=[core_v1.LoadBalancerIngress(ip="203.0.113.1")])
    api.put(found)

    def disabled(context: Context) -> ServiceLoadBalancerController:
        return ServiceLoadBalancerController(context, enabled=False)

    async with working(api, FakeClock(), disabled):
        await settle(100)
        assert (api.record("shop/web"), api.addresses("shop/web")) == ([], ["203.0.113.1"])


def with_record(message: str, *ports: Port) -> core_v1.Service:
    condition = meta_v1.Condition(type=port_records.TYPE, status="True", message=message)
    return core_v1.Service(
        spec=core_v1.ServiceSpec(ports=[core_v1.ServicePort(protocol=name, port=number) for name, number in ports]),
        status=core_v1.ServiceStatus(conditions=[condition]),
    )


def test_recorded_ports_are_read_as_they_were_written() -> None:
    ports = [("TCP", 80), ("TCP", 443), ("TCP", 444), ("TCP", 445), ("UDP", 53)]
    message = port_records.text(reversed(ports))
    assert message == "TCP 80,443-445; UDP 53"
    assert port_records.granted_ports(with_record(message, *ports, ("UDP", 80))) == ports


@pytest.mark.parametrize("message", ["", "TCP", "TCP 0", "TCP 80; UDP x", "TCP 80-99999", "nothing at all"])
def test_a_record_that_cannot_be_read_gives_no_ports(message: str) -> None:
    assert port_records.granted_ports(with_record(message, ("TCP", 80), ("UDP", 53))) == []


def test_other_conditions_and_the_time_of_the_record_stay() -> None:
    service = with_record("TCP 80", ("TCP", 80))
    service.status.conditions[0].last_transition_time = "1"
    other = meta_v1.Condition(type="Other", status="True")
    service.status.conditions.append(other)
    kept, record = port_records.conditions(service, [("TCP", 443)], "2")
    assert (kept, record.message, record.last_transition_time) == (other, "TCP 443", "1")
    assert port_records.conditions(service, [], "2") == [other]
