"""Limit on the Services of one namespace: the most expensive are left out, and return when there is room."""

from collections.abc import Sequence

import pytest

from kube.api import core_v1
from netproxy import metrics, namespace_budget
from netproxy.endpoints import NodeView
from netproxy.errors import ServiceError
from netproxy.iptables import backend
from netproxy.iptables import rules as iptables
from netproxy.model import plan_service
from netproxy.namespace_budget import RETRY, NamespaceBudget, rules_of
from netproxy.nftables import elements as nftables
from netproxy.proxy import CHECK_PERIOD
from netproxy.service_limits import AFFINITY_RULES, CHAINS, FREE_RULES, PAIRS, TIMEOUT_RULES, VIRTUAL_SERVERS, ModeCost
from netproxy.service_table import ServiceTable
from netproxy.settings import RuleSettings
from tests.support.clock import FakeClock, settle
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.services import port, service, slice_of
from tests.unit.netproxy.test_proxy import proxying

MODES = {"iptables": CHAINS, "nftables": PAIRS, "ipvs": VIRTUAL_SERVERS}


EXTERNAL = [f"203.0.113.{number}" for number in range(30)]
"""Addresses that each port of a large Service is served at: as many rules of fewer ports are planned in less time."""


def of(namespace: str, name: str, ports: int, external_ips: Sequence[str] = ()) -> core_v1.Service:
    number = sum(map(ord, namespace + name)) % 250
    made = service(name, f"10.96.5.{number}", *(port("", n + 1) for n in range(ports)), external_ips=list(external_ips))
    made.metadata.namespace = namespace
    return made


@pytest.mark.parametrize("cost", MODES.values(), ids=MODES)
async def test_the_services_of_one_namespace_take_no_more_rules_than_a_few_of_the_largest(cost: ModeCost) -> None:
    table = ServiceTable(NodeView("node-1"), cost=cost)
    each, count = cost.max_rules // cost.of_port(2 + len(EXTERNAL), 0) - 1, 18  # each within its own limit
    for number in range(count):
        table.set_service(f"evil/s{number:02}", of("evil", f"s{number:02}", each, EXTERNAL))
    table.set_service("evil/small", of("evil", "small", 50))
    table.set_service("good/large", of("good", "large", each, EXTERNAL))
    planned = await table.take_changes()
    served = {key for key, ports in planned.items() if ports}
    rules = sum(rules_of(planned[key], cost) for key in served if key.startswith("evil/"))
    assert cost.max_in_namespace * 0.6 < rules <= cost.max_in_namespace + (count + 1) * FREE_RULES
    assert {"evil/small", "good/large"} < served
    assert served.isdisjoint(table.too_large) and len(served) + len(table.too_large) == count + 2
    assert set(table.too_large.values()) == {NamespaceBudget(cost.max_in_namespace).why}
    # A change of one of those writes that one alone.
    table.set_service("evil/s00", of("evil", "s00", each - 1, EXTERNAL))
    assert set(await table.take_changes()) <= {"evil/s00"}


@pytest.mark.parametrize("cost", MODES.values(), ids=MODES)
def test_ten_thousand_services_of_several_ports_are_served(cost: ModeCost) -> None:
    numbers = {"a": 1, "b": 2, "c": 3}
    slice_ = slice_of("web", *(f"10.244.1.{n}" for n in range(10)), ports=numbers)
    rules = rules_of(
        plan_service(service("web", "10.96.5.1", *(port(*each) for each in numbers.items())), [slice_]), cost
    )
    budget = NamespaceBudget(cost.max_in_namespace)
    assert 60 <= rules <= FREE_RULES
    assert not any(budget.put(f"default/s{number}", rules) for number in range(10_000))


def test_rules_are_counted_as_they_are_written() -> None:
    settings = RuleSettings(node_addresses=("10.0.0.1",))
    made = service(
        "web",
        "10.96.5.1",
        *(port(f"p{n}", n + 1, node_port=30_000 + n) for n in range(20)),
        type="LoadBalancer",
        ingress=("198.51.100.1",),
        external_ips=["192.0.2.7", "192.0.2.8"],
    )
    slice_ = slice_of("web", *(f"10.244.1.{n}" for n in range(30)), ports={f"p{n}": n + 1 for n in range(20)})
    planned = plan_service(made, [slice_])
    fragment = iptables.fragment(planned, settings)
    written = len(fragment.entries) + sum(len(rules) for rules in fragment.chains.values())
    assert 0.8 * written <= rules_of(planned, CHAINS) <= 1.2 * written
    elements = len(nftables.fragment(planned, settings).elements)
    assert 0.8 * elements <= rules_of(planned, PAIRS) <= 1.2 * elements


def test_the_largest_are_left_out_in_whatever_order_they_come() -> None:
    costs = {"a/1": 60, "a/2": 50, "a/3": 30, "a/4": 90, "b/1": 99}
    for order in (sorted(costs), sorted(costs, reverse=True), sorted(costs, key=costs.__getitem__)):
        budget, left_out = NamespaceBudget(100), set[str]()
        for key in order:
            left_out.discard(key)
            left_out.update(budget.put(key, costs[key] + FREE_RULES))
        assert left_out == {"a/1", "a/4"}, order


def test_services_come_back_one_at_a_time_while_there_is_room() -> None:
    budget = NamespaceBudget(100)
    assert not budget.put("a/small", 90 + FREE_RULES)
    for key in ("a/1", "a/2", "a/3"):
        assert budget.put(key, 95 + FREE_RULES) == [key]
    assert budget.retries(0) == []
    assert budget.put("a/small", 0) == []
    (key,) = budget.retries(0)
    assert not budget.put(key, 30 + FREE_RULES)  # it has become smaller
    assert budget.retries(1) == budget.retries(RETRY) == []  # there is no room for another
    assert budget.put(key, 0) == []
    (other,) = budget.retries(RETRY)
    assert other != key and budget.retries(RETRY + 1) == []
    assert budget.put(other, 0) == [] and len(budget.retries(2 * RETRY)) == 1


async def test_a_service_left_out_for_its_namespace_is_reported_and_served_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespace_budget, "FREE_RULES", 10)
    monkeypatch.setattr(backend, "CHAINS", ModeCost(100, endpoint_rules=3, max_in_namespace=100))
    api, writer, clock, reported = MemoryAPI(), RecordingWriter(), FakeClock(), list[tuple[str, str]]()

    def on_not_served(left: core_v1.Service, why: str) -> None:
        reported.append((left.metadata.name or "", why))

    left_out = metrics.SERVICES_LEFT_OUT.labels("limit")
    async with proxying(api, writer, on_not_served=on_not_served, clock=clock) as proxy:
        for name, ports in (("one", 40), ("two", 45), ("small", 3)):
            api.put(of("default", name, ports))
        await settle(80)
        assert [name for name, _ in reported] == [
            "two"
        ] and "the Services of its namespace take more than 100" in reported[0][1]
        assert set(proxy.ports) == {"default/one", "default/small"} and left_out._value.get() == 1
        await clock.advance(CHECK_PERIOD)
        await proxy.verify()
        await settle(80)
        assert set(proxy.ports) == {"default/one", "default/small"}
        api.remove(of("default", "one", 40))
        await settle(80)
        await proxy.verify()
        await settle(80)
        assert set(proxy.ports) == {"default/two", "default/small"} and left_out._value.get() == 0
        assert len(reported) == 1


def test_session_affinity_counts_in_full_in_the_nftables_mode() -> None:
    """Small Services are free, but the chains of a thousand with session affinity are not."""
    made = service("web", "10.96.5.1", port("http", 80), session_affinity="ClientIP")
    planned = plan_service(made, [slice_of("web", "10.244.1.2", "10.244.1.3")])
    assert rules_of(planned, PAIRS) == FREE_RULES + 3 * AFFINITY_RULES
    assert rules_of(planned, CHAINS) < FREE_RULES
    seconds = core_v1.SessionAffinityConfig(client_ip=core_v1.ClientIPConfig(timeout_seconds=5))
    made.spec.session_affinity_config = seconds
    assert rules_of(plan_service(made, [slice_of("web", "10.244.1.2")]), PAIRS) == (
        FREE_RULES + 2 * AFFINITY_RULES + TIMEOUT_RULES
    )
    budget = NamespaceBudget(PAIRS.max_in_namespace)
    left_out = [key for number in range(4000) for key in budget.put(f"evil/s{number}", rules_of(planned, PAIRS))]
    assert len(left_out) == 4000 - PAIRS.max_in_namespace // (3 * AFFINITY_RULES)


def test_a_service_with_session_affinity_may_have_fewer_endpoints() -> None:
    ports = [port(f"p{n}", n + 1) for n in range(1000)]
    slices = [slice_of("web", *(f"10.244.1.{n}" for n in range(1, 4)), ports={f"p{n}": n + 1 for n in range(1000)})]
    assert len(plan_service(service("web", "10.96.5.1", *ports), slices)) == 1000
    with pytest.raises(ServiceError, match="multiply to 126000 rules"):
        plan_service(service("web", "10.96.5.1", *ports, session_affinity="ClientIP"), slices)
