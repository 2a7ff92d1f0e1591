"""Ports that a load balancer's status lists: a Service's author adds others at will, and they are not served."""

from __future__ import annotations

import pytest

from kube.api import core_v1
from netproxy.model import plan_service
from tests.support.services import port, service, slice_of

OWN, OTHER, SIX = "192.0.2.10", "192.0.2.11", "2001:db8::10"


def balanced(*ingress: core_v1.LoadBalancerIngress) -> dict[tuple[str, int], tuple[str, ...]]:
    ports = [port("http", 80), port("https", 443), port("dns", 80, "UDP")]
    made = service("web", "10.96.5.1", *ports, type="LoadBalancer")
    made.spec.cluster_ips = ["10.96.5.1", "fd00:96::1"]
    made.status.load_balancer = core_v1.LoadBalancerStatus(ingress=list(ingress))
    planned = plan_service(made, [slice_of("web", "10.244.1.2")], families=(4, 6))
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    for each in planned:
        key = each.protocol, each.port
        found[key] = (*found.get(key, ()), *each.load_balancer_ips)
    return found


def at(ip: str, *ports: tuple[str, int], error: str | None = None) -> core_v1.LoadBalancerIngress:
    granted = [core_v1.PortStatus(port=number, protocol=protocol, error=error) for protocol, number in ports]
    return core_v1.LoadBalancerIngress(ip=ip, ports=granted)


@pytest.mark.parametrize(
    ("ingress", "served"),
    [
        ([at(OWN)], [(OWN,), (OWN,), (OWN,)]),
        ([at(OWN, ("TCP", 80))], [(OWN,), (), ()]),
        ([at(OWN, ("UDP", 80), ("TCP", 443)), at(OTHER)], [(OTHER,), (OWN, OTHER), (OWN, OTHER)]),
        ([at(OWN, ("TCP", 80), error="InUse")], [(), (), ()]),
        ([at(OWN, ("TCP", 80)), at(OWN, ("TCP", 443))], [(OWN, OWN), (OWN, OWN), ()]),
        ([at(f"::ffff:{OWN}", ("TCP", 80))], [(OWN,), (), ()]),
        ([at(SIX, ("TCP", 80)), at(OWN, ("TCP", 443))], [(SIX,), (OWN,), ()]),
    ],
)
def test_an_address_that_lists_its_ports_is_served_at_these_alone(
    ingress: list[core_v1.LoadBalancerIngress], served: list[tuple[str, ...]]
) -> None:
    found = balanced(*ingress)
    assert [found["TCP", 80], found["TCP", 443], found["UDP", 80]] == served
