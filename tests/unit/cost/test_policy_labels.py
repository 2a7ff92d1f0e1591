"""Pods of very many labels: they cost what their policies ask for, and many of both are compared in slices.

Lines of Python are counted, as in test_policy_selectors.py.
"""

from __future__ import annotations

from typing import Any

from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import NamedPort, PodFacts
from netproxy.policy.table import SLICE, PolicyTable
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.support.policies import pod, policy
from tests.unit.cost.test_policy_selectors import HOLD, Loop


def labels(count: int) -> dict[str, str]:
    return {f"a{number}": "" for number in range(count)}


async def lines(count: int, *changes: Any) -> list[int]:
    """Return the lines of each of some changes beside pods with as many labels, in a namespace with as many."""
    loop = Loop()
    await loop.tell(SlimNamespace(SlimMeta(name="evil", labels=labels(count))))
    await loop.tell(*(pod(f"p{number}", namespace="evil", labels=labels(count)) for number in range(20)))
    found = [await loop.tell(each) for each in changes]
    assert loop.longest < HOLD
    return found


async def test_a_change_costs_no_more_where_pods_and_namespaces_have_many_labels() -> None:
    subject = {"matchLabels": {"app": "web"}}
    peer = {"namespaceSelector": {"matchLabels": {"team": "x"}}, "podSelector": subject}
    changes = (
        policy("p", "evil", podSelector=subject, ingress=[{"from": [peer]}]),
        pod("more", namespace="evil", labels={"app": "web"}),
    )
    few, many = await lines(10, *changes), await lines(2000, *changes)
    assert all(most < 2 * least for least, most in zip(few, many, strict=True)), (few, many)


def test_many_labels_of_pods_and_of_peers_are_compared_in_slices() -> None:
    table, size = PolicyTable(), 500
    table.set_namespace("evil", {})
    for number in range(20):
        table.set_pod(f"evil/{number}", PodFacts("evil", labels(size), (), True, ""))
    peers = [{"podSelector": {"matchLabels": {f"b{number}": "c"}}} for number in range(size)]
    made = parse(policy("p", "evil", podSelector={"matchLabels": {"app": "web"}}, ingress=[{"from": peers}]))
    assert sum(1 for _ in table.set_policy_in_slices(made)) >= 20 * size // SLICE


def test_equal_labels_and_ports_are_compared_once() -> None:
    compared = 0

    class Labels(dict[str, str]):
        __hash__ = None

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return dict.__eq__(self, other)

    class Ports(tuple[NamedPort, ...]):
        __slots__ = ()
        __hash__ = tuple.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple.__eq__(self, other)

    table = PolicyTable()
    table.set_namespace("evil", {})
    for number in range(50):
        absent = {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}
        table.set_policy(parse(policy(f"p{number}", "evil", podSelector=absent)))
    for number in range(2):
        facts = PodFacts("evil", Labels(labels(20)), (f"10.0.0.{number}",), True, "", Ports([NamedPort("a", "TCP", 1)]))
        assert table.set_pod("evil/p", facts)
    assert 0 < compared <= 4
    assert all(table.members(each.subject)["evil/p"].ips == ("10.0.0.1",) for each in table.policies.values())
