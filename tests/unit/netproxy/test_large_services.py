"""Large Services, whose rules are planned in a thread."""

import asyncio
import threading
from typing import Any

import pytest

from kube import ip_addresses
from kube.api import core_v1
from netproxy import address_ranges, large_changes, proxy, source_ranges
from netproxy.iptables import backend as iptables_backend
from netproxy.ipvs import desired_state, state
from netproxy.ipvs.backend import IPVSBackend
from netproxy.model import plan_service
from netproxy.nftables import backend
from netproxy.nftables import shadow as nftables_shadow
from netproxy.xtables import shadow as xtables_shadow
from tests.support.clock import FakeClock
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.packet_cases import FIXED, RULES
from tests.support.refusing_kernels import (
    Kernel,
    Make,
    Refusing,
    every,
    fresh,
    iptables,
    ipvs,
    nftables,
)
from tests.support.services import endpoint, port, service, slice_of
from tests.unit.cost.test_proxy_products import MODES, Site, addresses

MANY = large_changes.LARGE + 100


def with_ranges(count: int, name: str = "large") -> core_v1.Service:
    ranges = [f"{each}/32" for each in addresses(count)]
    ingress = ("192.0.2.1",)
    return service(name, "10.96.5.9", type="LoadBalancer", ingress=ingress, load_balancer_source_ranges=ranges)


SERVICES: dict[str, core_v1.Service] = {
    "ranges": with_ranges(MANY),
    "external IPs": service("large", "10.96.5.9", external_ips=addresses(MANY)),
    "balancers": service("large", "10.96.5.9", type="LoadBalancer", ingress=tuple(addresses(MANY))),
}
"""Services of one port and one endpoint."""


def watch(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list of whether each call of a function is in the event loop's thread."""
    called, whole = list[bool](), getattr(owner, name)

    def watched(*arguments: Any) -> Any:
        called.append(threading.current_thread() is threading.main_thread())
        return whole(*arguments)

    monkeypatch.setattr(owner, name, watched)
    return called


@pytest.mark.parametrize("what", SERVICES)
@pytest.mark.parametrize(
    ("module", "name", "make"),
    [(backend, "fragment", nftables), (state, "plan", ipvs), (iptables_backend, "fragment", iptables)],
)
async def test_a_thread_makes_the_rules_of_many_ranges_and_addresses(
    module: Any, name: str, make: Make, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_loop = watch(module, name, monkeypatch)
    site, slices = make(FakeClock()), [slice_of("large", endpoint("10.244.1.2"))]
    await site.backend.start({"default/large": plan_service(SERVICES[what], slices)})
    slices = [slice_of("large", endpoint("10.244.1.2"), endpoint("10.244.1.3"))]
    await site.backend.apply({"default/large": plan_service(SERVICES[what], slices)})
    assert in_loop == [False, False]


@pytest.mark.parametrize("what", SERVICES)
@pytest.mark.parametrize(
    ("owner", "name", "make"),
    [
        (nftables_shadow.Shadow, "difference", nftables),
        (desired_state.DesiredState, "change", ipvs),
        (xtables_shadow.Shadow, "difference", iptables),
    ],
)
async def test_a_thread_takes_many_ranges_and_addresses_away(
    owner: Any, name: str, make: Make, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make(FakeClock())
    await site.backend.start({"default/large": plan_service(SERVICES[what], [slice_of("large", "10.244.1.2")])})
    in_loop = watch(owner, name, monkeypatch)
    await site.backend.apply({"default/large": ()})
    assert in_loop == [False]
    assert site.held() == await fresh(make, {})


async def test_a_thread_compares_what_a_change_of_many_ranges_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site("nftables")
    await site.start([with_ranges(MANY), slice_of("large", "10.244.1.2")])
    in_loop = watch(proxy, "_differences", monkeypatch)
    for changed in (with_ranges(MANY + 1), with_ranges(1)):
        site.followed[core_v1.Service].put(changed)
        await site.proxy._sync()
    assert in_loop == [False, False]


@pytest.mark.parametrize("count", [100, 600])
@pytest.mark.parametrize(("module", "name", "make"), [(backend, "fragment", nftables), (state, "plan", ipvs)])
async def test_a_thread_makes_what_is_written_for_a_large_service(
    module: Any, name: str, make: Make, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, whole = list[bool](), getattr(module, name)

    def watched(*arguments: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return whole(*arguments)

    monkeypatch.setattr(module, name, watched)
    many = plan_service(service("many", "10.96.5.1", *(port(f"p{n}", n + 1) for n in range(count))), [])
    site = make(FakeClock())
    await site.backend.start({"default/many": many[:-1]})
    await site.backend.apply({"default/many": many})
    assert threads == [count < large_changes.LARGE] * 2
    assert site.held() == await fresh(make, {"default/many": many})


@pytest.mark.parametrize("mode", MODES)
async def test_source_ranges_are_parsed_once(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, read = list[str](), ip_addresses.network

    def counting(text: str) -> ip_addresses.Network:
        parsed.append(text)
        return read(text)

    for module in (address_ranges, source_ranges):
        monkeypatch.setattr(module, "network", counting)
    site = Site(mode)
    await site.start([with_ranges(9), slice_of("large", "10.244.1.2")])
    assert set(parsed) == {f"{each}/32" for each in addresses(9)}
    parsed.clear()
    await site.change(slice_of("large", "10.244.1.2", "10.244.1.3"))
    other_port = with_ranges(9)
    other_port.spec.ports[0].port = 81
    await site.change(other_port)
    assert parsed == []


async def test_services_that_are_planned_in_a_thread_follow_addresses_that_the_node_gains_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_changes, "LARGE", 0)
    kernel = Kernel(Refusing())
    backend = IPVSBackend(kernel, RecordingWriter(), RULES, FIXED, clock=FakeClock())
    ports = {key: made for key, made in every().items()}
    await backend.start(ports)
    site = ipvs(FakeClock())
    site.backend._kernel.nodes.add("192.168.0.9")  # type: ignore[attr-defined]
    new = plan_service(service("s1", "10.96.5.2", port("http", 80, node_port=30001), type="NodePort"), [])
    await site.backend.start(ports | {"default/s1": new})
    change = asyncio.create_task(backend.apply({"default/s1": new}))
    await asyncio.sleep(0)
    kernel.nodes.add("192.168.0.9")
    await asyncio.gather(change, backend._follow_node_addresses())
    assert backend._desired.total == site.backend._desired.total  # type: ignore[attr-defined]
