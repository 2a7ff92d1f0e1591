"""Limits on the policies of a namespace and of a node's pods, and the pods that are isolated above them."""

import random
from typing import Any

import pytest

from kube.api import networking_v1
from netproxy.errors import PolicyError
from netproxy.policy import node_costs
from netproxy.policy import policy_loader as loader_module
from netproxy.policy import table as table_module
from netproxy.policy.failures import Failures
from netproxy.policy.limits import MAX_COST, MAX_COST_HERE, MAX_NAMED_PORTS, MAX_PORTS_ALIKE
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import PodFacts, facts_of
from netproxy.policy.policy_loader import CLOSED_RETRY, PolicyLoader
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.table import PolicyTable
from netproxy.slices import run_to_end
from netproxy.slim_objects import SlimContainer, SlimPort
from tests.support.clock import FakeClock
from tests.support.policies import pod, policy


class Site:
    """A table with a pod here in each namespace, and the policies that the API has."""

    def __init__(self, *namespaces: str) -> None:
        self.table, self.clock = PolicyTable(), FakeClock()
        self.objects: dict[str, networking_v1.NetworkPolicy] = {}
        self.closed_for: dict[str, str] = {}
        failures = Failures(self.table, self.objects.get, lambda each, why: None)
        failures.add = self.closed_for.__setitem__  # type: ignore[method-assign]
        self.loader = PolicyLoader(self.table, self.objects.get, failures, self.clock)
        for number, name in enumerate(namespaces):
            self.table.set_namespace(name, {})
            facts = facts_of(pod("a", f"10.244.1.{number}", namespace=name), "node-1")
            self.table.set_pod(f"{name}/a", facts)

    def put(self, namespace: str, name: str, peers: int, ports: int) -> None:
        rule = {
            "from": [{"podSelector": {"matchLabels": {"app": f"a{n}"}}} for n in range(peers)],
            "ports": [{"port": f"p{n}"} for n in range(ports)],
        }
        self.objects[f"{namespace}/{name}"] = policy(name, namespace, ingress=[rule])
        run_to_end(self.loader.put(f"{namespace}/{name}", self.objects[f"{namespace}/{name}"]))
        self.loader.limit_node()

    def closed(self) -> set[str]:
        return {key for key, each in self.table.policies.items() if not any(each.rules.values())}

    def rules(self) -> int:
        return sum(map(len, RulesetBuilder(self.table, 4).build().chains.values()))


def test_a_namespace_of_many_large_policies_writes_no_more_rules_than_one_may() -> None:
    site = Site("evil", "good")
    site.put("good", "small", 1, 1)
    for number in range(10):
        site.put("evil", f"p{number}", 98, 100 - number)
    assert site.rules() < MAX_COST + 100
    assert len(site.closed()) == 8
    assert "good/small" not in site.closed()
    site.put("evil", "more", 5, 5)
    assert "evil/more" not in site.closed()


@pytest.mark.parametrize("seed", range(10))
def test_what_others_have_closes_no_policy_of_a_namespace_within_its_share(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_module, "MAX_COST", 200)
    monkeypatch.setattr(loader_module, "MAX_COST_HERE", 400)
    chance = random.Random(seed)
    names = [f"ns{number}" for number in range(8)]
    site = Site(*names)
    site.put("ns0", "a", 4, 5)
    site.put("ns0", "b", 5, 5)
    for number in range(100):
        site.put(chance.choice(names[1:]), f"p{chance.randrange(20)}", chance.randrange(1, 20), chance.randrange(1, 10))
        assert not {"ns0/a", "ns0/b"} & site.closed()
        costs = [each.cost for each in site.table.policies.values()]
        assert sum(costs) <= 400
        assert all(site.table.costs.total(name) <= 200 for name in names), number
    assert site.closed()


def with_pods(count: int) -> Site:
    """Return a site of two namespaces in which one has many pods, each with a label of its own."""
    site = Site("evil", "good")
    for number in range(count):
        made = pod(f"p{number}", f"10.244.2.{number}", namespace="evil", labels={"number": str(number)})
        site.table.set_pod(f"evil/p{number}", facts_of(made, "node-1"))
    return site


def for_all_but(number: int) -> dict[str, Any]:
    """Return a selector of all pods but one."""
    return {"matchExpressions": [{"key": "number", "operator": "NotIn", "values": [str(number)]}]}


@pytest.mark.parametrize("many", [False, True])
def test_jumps_to_policies_of_pods_in_many_combinations_are_bounded(
    many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_module, "MAX_COST_HERE", 1000)
    monkeypatch.setattr(node_costs, "MAX_COST_HERE", 1000)
    monkeypatch.setattr(loader_module, "MAX_PAIRS_HERE", 400 if many else 10_000)
    monkeypatch.setattr(node_costs, "MAX_PAIRS_HERE", 400 if many else 10_000)
    site = with_pods(40)
    site.put("good", "small", 1, 1)
    for number in range(100):
        made = policy(f"p{number}", "evil", podSelector=for_all_but(number % 40), ingress=[{}])
        site.objects[f"evil/p{number}"] = made
        run_to_end(site.loader.put(f"evil/p{number}", made))
        site.loader.limit_node()
        assert site.rules() <= 1000 + 150
    assert len(site.closed()) > 50 and "good/small" not in site.closed()


def test_many_policies_of_the_same_pods_cost_a_jump_each() -> None:
    site = with_pods(100)
    for number in range(900):
        made = policy(f"p{number}", "evil", ingress=[{"from": [{"podSelector": {}}]}])
        site.objects[f"evil/p{number}"] = made
        run_to_end(site.loader.put(f"evil/p{number}", made))
    site.loader.limit_node()
    assert not site.closed()
    assert 1800 <= site.rules() < 1850


def test_policies_that_allow_nothing_take_no_rules() -> None:
    site = with_pods(100)
    before = site.rules()
    nothing = [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/9", "10.128.0.0/9"]}}]}]
    for number in range(100):
        made = policy(f"p{number}", "evil", podSelector=for_all_but(number), ingress=nothing * (number % 2))
        run_to_end(site.loader.put(f"evil/p{number}", made))
    assert 0 < site.rules() - before < 10


def test_a_policy_of_a_pod_that_comes_to_the_node_is_counted_then() -> None:
    site = Site("ns0", "ns1", "ns2", "ns3", "ns4")
    site.table.set_pod("ns4/a", None)
    for number in range(5):
        site.put(f"ns{number}", "a", 90 + number, 100)
    assert site.closed() == set()
    site.table.set_pod("ns4/a", facts_of(pod("a", "10.244.1.9", namespace="ns4"), "node-1"))
    site.loader.limit_node()
    assert site.closed() == {"ns4/a"}
    assert site.rules() < MAX_COST_HERE


async def test_closed_policies_of_each_namespace_have_their_turn() -> None:
    site = Site("evil", "good")
    for number in range(20):
        site.put("evil", f"p{number}", 98, 100)
    for number in range(3):
        site.put("good", f"p{number}", 98, 90)
    assert {"good/p2"} == {key for key in site.closed() if key.startswith("good")}
    del site.objects["good/p0"]
    site.loader.delete("good/p0")
    for _ in range(2):
        await site.clock.advance(CLOSED_RETRY)
        assert run_to_end(site.loader.retry_next())
    assert not {key for key in site.closed() if key.startswith("good")}


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_named_ports_of_pods_count_for_each_name(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_MEMBERS", 60)
    peer, ports = {"from": "ingress", "to": "egress"}, [{"port": f"p{number}"} for number in range(10)]
    word = next(each for each, where in peer.items() if where == direction)
    table = PolicyTable()
    table.set_namespace("default", {})
    for number in range(5):
        table.set_pod(f"default/{number}", facts_of(pod(str(number), f"10.244.1.{number}"), "node-1"))
    rule = {word: [{"podSelector": {}}], "ports": ports}
    table.set_policy(parse(policy("ten", policyTypes=[direction.title()], **{direction: [rule]})))
    rule["ports"] = [{"port": f"q{number}"} for number in range(12)]
    with pytest.raises(PolicyError, match="more than"):
        table.set_policy(parse(policy("ten", policyTypes=[direction.title()], **{direction: [rule]})))


def test_pods_without_addresses_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that no node takes cost their author nothing, and are no elements: they close nobody's policies."""
    monkeypatch.setattr(table_module, "MAX_MEMBERS", 5)
    table = PolicyTable()
    table.set_namespace("default", {})
    table.set_namespace("evil", {})

    def put(number: int, *addresses: str) -> None:
        facts = facts_of(pod(str(number), *addresses, namespace="evil"), "node-1")
        table.set_pod(f"evil/{number}", facts)

    everybody = {"from": [{"namespaceSelector": {}}]}
    for number in range(20):
        put(number)
    table.set_policy(parse(policy("a", ingress=[everybody])))
    for number in range(20, 40):
        put(number)
    assert not table.selections.counts.is_excessive("default")
    for number in range(5):
        put(number, f"10.244.1.{number}")
    run_to_end(table.selections.counts.settle())
    assert not table.selections.counts.is_excessive("default")
    put(5, "10.244.1.5")
    run_to_end(table.selections.counts.settle())
    assert table.selections.counts.is_excessive("default")
    put(5)
    run_to_end(table.selections.counts.settle())
    assert not table.selections.counts.is_excessive("default")


def with_ports(*names: str) -> PodFacts:
    """Return a pod here with a container for each name, whose port has it."""
    found = pod("many", "10.244.1.9", namespace="good")
    found.spec.containers = [SlimContainer([SlimPort(number, name)]) for number, name in enumerate(names, 1)]
    facts = facts_of(found, "node-1")
    assert facts is not None
    return facts


def test_a_name_of_very_many_ports_of_a_pod_leads_to_few_of_them() -> None:
    site = Site("good")
    site.put("good", "p", 1, 1)
    before = sum(map(len, RulesetBuilder(site.table, 4).build().elements.values()))
    site.table.set_pod("good/many", with_ports(*["p0"] * 5000))
    after = RulesetBuilder(site.table, 4).build().elements
    assert sum(map(len, after.values())) <= before + MAX_PORTS_ALIKE + 3
    named = next(elements for name, elements in after.items() if name.startswith("named-"))
    assert list(named) == [f"10.244.1.9 . {number}" for number in range(1, MAX_PORTS_ALIKE + 1)]


def test_ports_that_are_found_by_name_are_counted_once_and_limited() -> None:
    found = pod("two", "10.244.1.9")
    found.spec.containers = [SlimContainer([SlimPort(80, "http"), SlimPort(80, "http", "UDP")])] * 2
    facts = facts_of(found, "node-1")
    assert facts is not None
    assert [(each.protocol, each.number) for each in facts.ports] == [("TCP", 80), ("UDP", 80)]
    assert len(with_ports(*map(str, range(5000))).ports) == MAX_NAMED_PORTS


def test_a_failure_of_a_policy_that_is_created_again_waits_until_it_is_loaded() -> None:
    site, reported = Site("a"), list[str]()
    failures = Failures(site.table, site.objects.get, lambda each, why: reported.append(why))
    failures.add("a/p", "the kernel refuses its rules")  # found while the policy was deleted
    failures.report()
    site.objects["a/p"] = policy("p", "a")
    failures.report()
    assert reported == []
    run_to_end(site.loader.put("a/p", site.objects["a/p"]))
    failures.report()
    assert reported == ["the kernel refuses its rules"]
