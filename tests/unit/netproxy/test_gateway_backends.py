"""Endpoints of a gateway's backends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from kube.api import core_v1, discovery_v1, meta_v1
from netproxy.endpoints import NodeView
from netproxy.gateway.backends import Backends, PortEndpoints
from netproxy.gateway.errors import Refused

Endpoint = discovery_v1.Endpoint


class Objects:
    """Services and slices of a test."""

    def __init__(self) -> None:
        ports = [core_v1.ServicePort(name="web", port=80), core_v1.ServicePort(name="udp", port=53, protocol="UDP")]
        self.found = core_v1.Service(
            metadata=meta_v1.ObjectMeta(name="s", namespace="n"), spec=core_v1.ServiceSpec(ports=ports)
        )
        self.endpoints: list[Endpoint] = []
        self.address_type = "IPv4"

    def service(self, namespace: str, name: str) -> core_v1.Service | None:
        return self.found if (namespace, name) == ("n", "s") else None

    def endpoint_slices(self, namespace: str, name: str) -> Iterable[discovery_v1.EndpointSlice]:
        port = discovery_v1.EndpointPort(name="web", port=8080, protocol="TCP")
        yield discovery_v1.EndpointSlice(address_type=self.address_type, endpoints=self.endpoints, ports=[port])


def endpoint(address: str, *, ready: bool = True, terminating: bool = False) -> Endpoint:
    conditions = discovery_v1.EndpointConditions(ready=ready, serving=ready or terminating, terminating=terminating)
    return Endpoint(addresses=[address], conditions=conditions)


async def picked(objects: Objects, own: frozenset[str] = frozenset()) -> list[str]:
    """Return the addresses that requests go to, or the status that refuses them."""
    backends = Backends(objects, lambda: own, NodeView("node"))
    try:
        found = await backends.find("n", "s", 80)
    except Refused as refused:
        return [str(refused.status)]
    return sorted({address for address, _ in (found.pick(set()) or ("none", 0) for _ in range(20))})


async def test_ready_endpoints_are_used_and_terminating_ones_only_without_them() -> None:
    objects = Objects()
    objects.endpoints = [endpoint("10.0.0.1"), endpoint("10.0.0.2", ready=False, terminating=True)]
    assert await picked(objects) == ["10.0.0.1"]
    objects.endpoints = [endpoint("10.0.0.1", ready=False), endpoint("10.0.0.2", ready=False, terminating=True)]
    assert await picked(objects) == ["10.0.0.2"]
    objects.endpoints = []
    assert await picked(objects) == ["503"]


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "192.0.2.1", "nonsense"])
async def test_addresses_of_the_node_and_special_ones_are_no_endpoints(address: str) -> None:
    objects = Objects()
    objects.endpoints = [endpoint(address)]

    assert await picked(objects, frozenset({"192.0.2.1"})) == ["503"]


@pytest.mark.parametrize("address", ["::ffff:192.0.2.1", "::FFFF:C000:201", "2001:DB8:0::7"])
async def test_an_address_of_the_node_is_recognized_in_every_form(address: str) -> None:
    objects = Objects()
    objects.endpoints, objects.address_type = [endpoint(address)], "IPv6"
    assert await picked(objects, frozenset({"192.0.2.1", "2001:db8::7"})) == ["503"]


async def test_services_without_the_port_or_with_an_external_name_are_errors_of_the_route() -> None:
    objects = Objects()
    objects.endpoints = [endpoint("10.0.0.1")]
    backends = Backends(objects, frozenset, NodeView("node"))
    for name, port in (("s", 81), ("s", 53), ("other", 80)):
        with pytest.raises(Refused) as refused:
            await backends.find("n", name, port)
        assert refused.value.status == 500
    objects.found.spec.type = "ExternalName"
    assert await picked(objects) == ["500"]


async def test_a_change_is_seen_once_the_service_is_forgotten() -> None:
    objects = Objects()
    objects.endpoints = [endpoint("10.0.0.1")]
    backends = Backends(objects, frozenset, NodeView("node"))
    assert (await backends.find("n", "s", 80)).pick(set()) == ("10.0.0.1", 8080)
    objects.endpoints = [endpoint("10.0.0.2")]
    backends.forget("n", "s")
    assert (await backends.find("n", "s", 80)).pick(set()) == ("10.0.0.2", 8080)


def test_an_endpoint_that_failed_is_tried_last() -> None:
    found = PortEndpoints([("a", 1), ("b", 1)])
    found.avoid(("a", 1), 60)

    assert [found.pick(set()) for _ in range(3)] == [("b", 1)] * 3
    assert found.pick({("b", 1)}) == ("a", 1) and found.pick({("a", 1), ("b", 1)}) is None


class Large(Objects):
    """A Service and a slice with thousands of ports."""

    COUNT = 18_000

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.found.spec.ports = [core_v1.ServicePort(name=f"p{each}", port=each) for each in range(1, self.COUNT + 1)]
        self._slice = discovery_v1.EndpointSlice(
            address_type="IPv4",
            endpoints=[endpoint("10.0.0.1")],
            ports=[discovery_v1.EndpointPort(name=f"p{each}", port=each) for each in range(1, self.COUNT + 1)],
        )

    def service(self, namespace: str, name: str) -> core_v1.Service | None:
        return self.found

    def endpoint_slices(self, namespace: str, name: str) -> Iterable[discovery_v1.EndpointSlice]:
        self.read += 1
        return [self._slice]


async def test_the_ports_of_a_service_are_indexed_once_for_all_in_iterations_that_others_share() -> None:
    objects = Large()
    backends = Backends(objects, frozenset, NodeView("node"))
    requests = [asyncio.ensure_future(backends.find("n", "s", port)) for port in range(1, 5001)]
    iterations = 0
    while not all(each.done() for each in requests):
        await asyncio.sleep(0)
        iterations += 1
    assert [each.result().pick(set()) for each in requests] == [("10.0.0.1", port) for port in range(1, 5001)]
    assert objects.read == 1 and iterations > 5


async def test_the_indexes_of_one_namespace_drop_none_of_another() -> None:
    objects = Large()
    backends = Backends(objects, frozenset, NodeView("node"))
    other = await backends.find("other", "s", 1)
    for name in ("a", "b", "c"):
        await backends.find("n", name, 1)
    before = objects.read
    assert await backends.find("other", "s", 1) is other
    await backends.find("n", "c", 1)
    assert objects.read == before
    await backends.find("n", "a", 1)
    assert objects.read == before + 1
