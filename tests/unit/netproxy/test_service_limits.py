"""Limit on one Service: rules grow with its length, and one whose product is too large is left out and reported once."""

from typing import Any

import pytest

from kube.api import core_v1
from netproxy import metrics
from netproxy.endpoints import NodeView
from netproxy.errors import ServiceError
from netproxy.iptables import rules as iptables
from netproxy.model import plan_service
from netproxy.nftables import elements as nftables
from netproxy.service_limits import CHAINS, MAX_RULES, VIRTUAL_SERVERS
from netproxy.service_table import ServiceTable
from netproxy.settings import RuleSettings
from tests.support.hollow import eventually
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.services import port, service, slice_of
from tests.unit.netproxy.test_proxy import proxying


def many_ports(count: int) -> list[core_v1.ServicePort]:
    return [port(f"p{n}", n + 1) for n in range(count)]


def balanced(ports: int, ranges: int, **spec: Any) -> core_v1.Service:
    cidrs = [f"10.{n // 250}.{n % 250}.0/25" for n in range(ranges)]
    return service(
        "web",
        "10.96.5.1",
        *many_ports(ports),
        type="LoadBalancer",
        ingress=("198.51.100.1",),
        load_balancer_source_ranges=cidrs,
        **spec,
    )


def iptables_rules(made: core_v1.Service, ports: int) -> int:
    planned = plan_service(made, [slice_of("web", "10.244.1.2", ports={f"p{n}": n + 1 for n in range(ports)})])
    fragment = iptables.fragment(planned, RuleSettings(node_addresses=("10.0.0.1",)))
    return len(fragment.entries) + sum(len(rules) for rules in fragment.chains.values())


def nftables_elements(made: core_v1.Service, ports: int) -> int:
    planned = plan_service(made, [slice_of("web", "10.244.1.2", ports={f"p{n}": n + 1 for n in range(ports)})])
    fragment = nftables.fragment(planned, RuleSettings(node_addresses=("10.0.0.1",)))
    return len(fragment.elements) + sum(len(rules) for rules in fragment.own_chains.values())


@pytest.mark.parametrize("count", [iptables_rules, nftables_elements])
def test_rules_are_the_sum_of_ports_and_source_ranges(count: Any) -> None:
    none = count(balanced(40, 1), 40)
    assert count(balanced(40, 401), 40) - none == 400
    assert count(balanced(80, 1), 80) < 2 * none
    assert count(balanced(80, 401), 80) - count(balanced(80, 1), 80) == 400


def test_a_product_above_the_limit_is_an_error_and_is_not_multiplied_out() -> None:
    wide = service(
        "web", "10.96.5.1", *many_ports(9000), external_ips=[f"192.{n >> 8}.{n % 256}.1" for n in range(50_000)]
    )
    with pytest.raises(ServiceError, match="multiply to 450018000 rules of IPv4; 100000 are written at most"):
        plan_service(wide, [])
    slices = [slice_of("web", *(f"10.244.{n}.{m}" for m in range(250)), suffix=str(n)) for n in range(20)]
    ten = service("web", "10.96.5.1", *(port("http", 80 + n) for n in range(10)))
    assert len(plan_service(ten, slices)) == 10  # 10 ports at 2 addresses to 5000 endpoints
    with pytest.raises(ServiceError, match="multiply to 110000 rules"):
        plan_service(service("web", "10.96.5.1", *(port("http", 80 + n) for n in range(11))), slices)


def test_source_ranges_count_for_each_port_where_the_mode_writes_them_so() -> None:
    made = balanced(100, 1001)
    assert len(plan_service(made, [])) == 100
    with pytest.raises(ServiceError, match="multiply to 100400 rules"):
        plan_service(made, [], cost=VIRTUAL_SERVERS)


def test_the_iptables_mode_takes_as_many_rules_as_are_written_in_seconds() -> None:
    def planned(ports: int, *endpoints: str) -> int:
        made = service("web", "10.96.5.1", *many_ports(ports))
        numbers = {f"p{n}": n + 1 for n in range(ports)}
        found = plan_service(made, [slice_of("web", *endpoints, ports=numbers)], cost=CHAINS)
        fragment = iptables.fragment(found, RuleSettings(node_addresses=("10.0.0.1",)))
        return len(fragment.entries) + sum(len(rules) for rules in fragment.chains.values())

    six = [f"10.244.1.{n}" for n in range(6)]
    assert 19_000 <= planned(1000, *six) <= 20_000
    assert 19_000 // 5 <= planned(4000, *six[:1]) <= 20_000
    for ports, endpoints in ((1001, 6), (4001, 1), (8000, 6)):
        with pytest.raises(ServiceError, match="rules of IPv4; 20000 are written at most"):
            planned(ports, *six[:endpoints])
    with pytest.raises(ServiceError, match="multiply to 20009 rules"):
        plan_service(balanced(3, 20_000), [], cost=CHAINS)


async def test_lists_that_are_equal_are_the_same_after_a_change() -> None:
    table = ServiceTable(NodeView("node-1"))
    table.set_service("default/web", balanced(2, 3, external_ips=["192.0.2.7"]))
    (before, _) = (await table.take_changes())["default/web"]
    table.set_service("default/web", balanced(2, 3, external_ips=["192.0.2.7"], session_affinity="ClientIP"))
    (after, _) = (await table.take_changes())["default/web"]
    assert after != before
    for name in ("source_ranges", "external_ips", "load_balancer_ips"):
        assert getattr(after, name) is getattr(before, name)


async def test_a_service_that_costs_too_much_is_left_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    api, writer, reported = MemoryAPI(), RecordingWriter(), list[tuple[str, str]]()

    def on_not_served(left: core_v1.Service, why: str) -> None:
        reported.append((left.metadata.name or "", why))

    left_out = metrics.SERVICES_LEFT_OUT.labels("limit")
    async with proxying(api, writer, on_not_served=on_not_served):
        ips = [f"192.0.{n >> 8}.{n % 256}" for n in range(1000)]
        wide = service("wide", "10.96.5.1", *many_ports(MAX_RULES // 1000), external_ips=ips)
        api.put(wide)
        api.put(service("web", "10.96.5.2"))
        api.put(slice_of("web", "10.244.1.2"))
        await eventually(lambda: "10.96.5.2/32" in str(writer.tables))  # a thread plans `wide` before it is written
        assert "10.96.5.1/32" not in str(writer.tables) and left_out._value.get() == 1
        wide.metadata.annotations = {"a": "b"}
        api.put(wide)
        api.put(service("next", "10.96.5.3"))
        await eventually(lambda: "10.96.5.3/32" in str(writer.tables))
        assert [name for name, _ in reported] == ["wide"] and "multiply to 100200 rules" in reported[0][1]
        assert sum("Service default/wide is not served" in each.getMessage() for each in caplog.records) == 1
        wide.spec.external_ips = []
        api.put(wide)
        await eventually(lambda: "10.96.5.1/32" in str(writer.tables))
        assert left_out._value.get() == 0
