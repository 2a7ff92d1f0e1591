"""The proxy uses the endpoints of Gateways' Services that the node's own gateway listens on, and no others."""

from __future__ import annotations

import asyncio

from kube.api import core_v1, discovery_v1
from kube.gateway import names
from netproxy.endpoints import NodeView
from netproxy.gateway_conflicts import PERIOD, GatewayConflicts
from netproxy.model import ServicePort
from netproxy.service_table import ServiceTable
from netproxy.socket_lookup import Query
from tests.support.clock import FakeClock
from tests.support.services import endpoint, port, service, slice_of

KEY = f"{names.NAMESPACE}/ingress"


def gateway(
    *, label: bool = True, namespace: str = names.NAMESPACE
) -> tuple[core_v1.Service, discovery_v1.EndpointSlice]:
    made = service(
        "ingress",
        "10.96.7.1",
        port("port-80", 80),
        port("port-443", 443),
        namespace=namespace,
        ingress=("192.0.2.1",),
        type="LoadBalancer",
        external_traffic_policy="Local",
        internal_traffic_policy="Local",
    )
    listed = slice_of(
        "ingress",
        endpoint("192.0.2.1"),
        endpoint("192.0.2.2", node="node-2"),
        ports={"port-80": 61000, "port-443": 61001},
        namespace=namespace,
    )
    if label:
        listed.metadata.labels[names.UID] = names.INGRESS
    return made, listed


def table(made: core_v1.Service, listed: discovery_v1.EndpointSlice) -> ServiceTable:
    found = ServiceTable(NodeView("node-1"))
    found.set_service(f"{made.metadata.namespace}/ingress", made)
    found.set_slice(listed)
    return found


async def planned(found: ServiceTable) -> dict[int, ServicePort]:
    (ports,) = (await found.take_changes()).values()
    return {each.port: each for each in ports}


async def test_nothing_leads_to_a_gateway_that_does_not_listen() -> None:
    for each in (await planned(table(*gateway()))).values():
        assert not each.endpoints and not each.local_endpoints
        assert not each.has_endpoints_anywhere, "connections are refused, not dropped"


async def test_each_port_leads_to_the_own_gateway_while_that_listens_on_it() -> None:
    found = table(*gateway())
    await found.take_changes()
    found.set_gateway_addresses(frozenset({("192.0.2.1", 61000), ("192.0.2.2", 61001)}))
    ports = await planned(found)
    assert [str(each) for each in ports[80].local_endpoints] == ["192.0.2.1:61000"]
    assert [str(each) for each in ports[80].endpoints] == ["192.0.2.1:61000"]
    assert not ports[443].has_endpoints_anywhere
    found.set_gateway_addresses(frozenset())
    assert not (await planned(found))[80].has_endpoints_anywhere


async def test_the_same_addresses_again_change_nothing() -> None:
    found = table(*gateway())
    found.set_gateway_addresses(frozenset({("192.0.2.1", 61000)}))
    await found.take_changes()
    found.set_gateway_addresses(frozenset({("192.0.2.1", 61000)}))
    assert not found.dirty


async def test_other_services_are_not_affected() -> None:
    for found in (table(*gateway(label=False)), table(*gateway(namespace="default"))):
        ports = await planned(found)
        assert len(ports[80].endpoints) == 2


class Conflicts:
    """Reports, with sockets of two users."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reports: list[str] = []
        users = {Query("TCP", "192.0.2.1", 61000): 1000, Query("TCP", "2001:db8::1", 61000): 0}
        self.tested = GatewayConflicts(self.reports.append, self.reports.append, self.clock, lambda queries: users)

    async def reported(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.reports) < count:
                await asyncio.sleep(0.001)


async def test_a_report_names_a_few_ports_with_their_users_and_the_number_of_others() -> None:
    site = Conflicts()
    task = asyncio.create_task(site.tested.run())
    try:
        site.tested.failed([("192.0.2.1", 61000), ("2001:db8::1", 61000)])
        site.tested.failed([("192.0.2.1", number) for number in range(61001, 62024)])
        await site.reported(1)
        for part in (
            "192.0.2.1:61000 (a program of user 1000)",
            "[2001:db8::1]:61000 (a program of user 0)",
            "1021 more",
        ):
            assert part in site.reports[0]
        assert len(site.reports[0]) < 1000
    finally:
        task.cancel()


async def test_an_address_is_reported_once_until_the_gateway_has_had_it_and_once_a_minute_at_most() -> None:
    site, address = Conflicts(), ("192.0.2.1", 61000)
    task = asyncio.create_task(site.tested.run())
    try:
        site.tested.failed([address])
        await site.reported(1)
        site.tested.failed([address])
        await site.clock.advance(PERIOD + 1)
        assert len(site.reports) == 1
        for _ in range(3):
            site.tested.listening([address])
            site.tested.failed([address])
        await site.reported(2)
        site.tested.listening([address])
        site.tested.failed([address])
        await site.clock.advance(PERIOD / 2)
        assert len(site.reports) == 2
        await site.clock.advance(PERIOD)
        await site.reported(3)
    finally:
        task.cancel()
