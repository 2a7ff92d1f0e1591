"""Policies whose peers are too many pods: they are counted as pods come and go, and closed one by one between turns of others.

Lines of Python are counted, as in test_policy_selectors.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from netproxy.policy import table as table_module
from tests.support.policies import pod, policy
from tests.unit.cost.test_policy_selectors import HOLD, Loop

PODS = 50


def sharing(number: int) -> Any:
    """Return a policy with the same peer as all others of the namespace."""
    return policy(f"p{number}", "evil", ingress=[{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}]}])


def peers(first: int, count: int) -> list[Any]:
    return [
        pod(f"m{number}", f"10.244.{2 + number // 250}.{number % 250}", namespace="evil", labels={"a": "b"})
        for number in range(first, first + count)
    ]


async def lines_to_close(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the lines of a pod by which every other policy is too many."""
    monkeypatch.setattr(table_module, "MAX_MEMBERS", count * PODS)
    loop = Loop()
    await loop.tell(*peers(0, PODS), *(sharing(number) for number in range(count)))
    table = loop.enforcer._table
    table.selections.counts._most = (PODS + 1) * count // 2
    elapsed = await loop.tell(*peers(PODS, 1))
    closed = [key for key, each in table.policies.items() if not each.peers]
    assert len(closed) == count // 2
    assert loop.longest < HOLD
    return elapsed


async def test_closing_policies_costs_their_number_and_does_not_hold_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = [await lines_to_close(count, monkeypatch) for count in (400, 1600)]
    assert many < 5 * few, (few, many)


async def test_a_namespace_is_at_no_time_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_MEMBERS", 20 * PODS)
    loop = Loop()
    await loop.tell(*(sharing(number) for number in range(20)))
    table = loop.enforcer._table
    for number in range(2 * PODS):
        await loop.tell(*peers(number, 1))
        sizes = [len(table.members(selector)) for each in table.policies.values() for selector in each.peers]
        assert sum(sizes) <= 20 * PODS
    assert len(table.policies) == 20 and sum(bool(each.peers) for each in table.policies.values()) == 10


async def test_a_deleted_policy_whose_deletion_comes_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_MEMBERS", 3 * PODS)
    loop = Loop()
    await loop.tell(*peers(0, PODS), *(sharing(number) for number in range(3)))
    del loop.policies["evil/p2"]  # the first to be closed, of three with as many members
    await loop.tell(*peers(PODS, 1))
    assert set(loop.enforcer._table.policies) == {"evil/p0", "evil/p1"}
    assert all(each.peers for each in loop.enforcer._table.policies.values())


async def test_pods_cost_no_more_where_many_policies_share_a_peer() -> None:
    loop = Loop()
    await loop.tell(*(sharing(number) for number in range(20)))
    few = await loop.tell(*peers(0, PODS))
    await loop.tell(*(sharing(number) for number in range(400)))
    many = await loop.tell(*peers(PODS, PODS))
    assert many < 1.5 * few, (few, many)
