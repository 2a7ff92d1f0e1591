"""Policies of many peers beside many pods: their comparisons are a sum, and no change holds the loop for all of them.

Lines of Python are counted, in all and between two turns of another task of the loop, as DNS answers are.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.informer import Change
from kube.selectors import LabelSelector, Requirement
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.limits import MAX_ALIKE
from netproxy.policy.selector_index import hints_of
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.support.clock import FakeClock
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import pod, policy
from tests.unit.cost.test_proxy_products import Steps

HOLD = 60_000
"""The most lines between two turns of others: about 10 ms."""


def peer(number: int, operator: str) -> dict[str, Any]:
    values = [f"q{number}", f"r{number}"] if operator in ("In", "NotIn") else None
    key = "app" if operator in ("In", "NotIn") else f"k{number}"
    expression = {"key": key, "operator": operator} | ({"values": values} if values else {})
    return {"namespaceSelector": {}, "podSelector": {"matchExpressions": [expression]}}


class Loop:
    """An enforcer that gets objects, and the lines between two steps of another task."""

    def __init__(self) -> None:
        clock = FakeClock()
        backend = PolicyBackend(RecordingWriter(), 4, clock=clock)
        self.enforcer = PolicyEnforcer(None, "node-1", [backend], clock=clock)  # type: ignore[arg-type]
        self.enforcer._queue._timer = lambda: 0.0  # the order would depend on time
        self.enforcer._loader._get = self.enforcer._failures._get = lambda key: self.policies.get(key)
        self.policies: dict[str, Any] = {}
        self.longest = 0

    async def tell(self, *objects: Any) -> int:
        """Return the lines until objects are processed."""
        with Steps() as steps:
            tasks = [asyncio.create_task(self.enforcer._queue.run()), asyncio.create_task(self._others(steps))]
            for each in objects:
                if isinstance(each, SlimNamespace):
                    self.enforcer._namespace_changed(Change("ADDED", None, each))
                elif hasattr(each.spec, "ingress"):
                    self.policies[f"{each.metadata.namespace}/{each.metadata.name}"] = each
                    self.enforcer._policy_changed(Change("ADDED", None, each))
                else:
                    self.enforcer._pod_changed(Change("ADDED", None, each))
            await self.enforcer._queue.join()
            for task in tasks:
                task.cancel()
        return steps.count

    async def _others(self, steps: Steps) -> None:
        last = steps.count
        while True:
            await asyncio.sleep(0)
            self.longest = max(self.longest, steps.count - last)
            last = steps.count


def pods(count: int) -> list[Any]:
    names = [SlimNamespace(SlimMeta(name=f"ns{number}", labels={"team": f"t{number % 7}"})) for number in range(5)]
    made = [
        pod(
            f"p{number}",
            f"10.1.{number >> 8}.{number & 255}",
            namespace=f"ns{number % 5}",
            labels={"app": f"a{number % 40}", "tier": "x"},
            node="node-2",
        )
        for number in range(count)
    ]
    return [*names, *made]


def evil(name: str, operator: str, count: int, first: int = 0) -> Any:
    return policy(name, "evil", ingress=[{"from": [peer(first + number, operator) for number in range(count)]}])


async def both_ways(operator: str, peers: int, others: int) -> tuple[int, int]:
    """Return the lines for a policy beside pods, and for pods beside it."""
    first, second = Loop(), Loop()
    await first.tell(*pods(others))
    made = await first.tell(evil("p", operator, peers))
    await second.tell(evil("p", operator, peers))
    return made, await second.tell(*pods(others))


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist"])
async def test_peers_and_pods_cost_their_sum(operator: str) -> None:
    """In finds by its values; of the others only as many as may be are in force."""
    size = 2 * MAX_ALIKE
    few = [await both_ways(operator, size, others) for others in (50, 100)]
    many = [await both_ways(operator, 2 * size, others) for others in (50, 100)]
    for way in (0, 1):
        product = (many[1][way] - many[0][way]) - (few[1][way] - few[0][way])
        assert product / (size * 50) < 0.1, (way, few, many)


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists"])
async def test_no_change_of_a_policy_pod_or_namespace_holds_the_loop(operator: str) -> None:
    loop = Loop()
    await loop.tell(*(evil(f"p{number}", operator, 98, 98 * number) for number in range(3)))
    await loop.tell(*pods(1000))
    await loop.tell(*(evil(f"more{number}", operator, 98, 1000 + number) for number in range(3)))
    await loop.tell(*(SlimNamespace(SlimMeta(name=f"ns{number}", labels={"team": "new"})) for number in range(5)))
    assert loop.longest < HOLD


def helm(number: int, peers: int) -> Any:
    """Return a policy with peers of which all share two labels, and each has one of its own."""
    shared = {"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm"}
    names = [{"app.kubernetes.io/name": f"s{number}-{each}"} for each in range(peers)]
    return policy(
        f"p{number}", "shop", ingress=[{"from": [{"podSelector": {"matchLabels": shared | n}} for n in names]}]
    )


async def test_a_pod_of_a_release_costs_no_more_beside_ten_times_as_many_policies_of_it() -> None:
    labels = {"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm"}
    costs = []
    for count in (4 * MAX_ALIKE, 40 * MAX_ALIKE):
        loop = Loop()
        await loop.tell(*(helm(number, 20) for number in range(count // 20)))
        costs.append(await loop.tell(pod("p", "10.1.0.1", namespace="shop", labels=labels, node="node-2")))
        assert loop.longest < HOLD
    assert costs[1] < 2 * costs[0], costs


def test_to_find_the_labels_of_a_long_selector_costs_its_length() -> None:
    compared = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == other

    keys = [Counted(f"k{number}") for number in range(2000)]
    hints_of(LabelSelector(tuple(Requirement(key, "in", frozenset({"x"})) for key in keys)))
    assert compared <= len(keys)
