"""Changes of one member of a policy's peers: their cost does not depend on how many other members the peers have.

Lines of Python are counted, from the event of a pod to the text for nft.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from netproxy import large_changes
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import PodFacts, facts_of
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.ruleset import flatten
from netproxy.policy.table import PolicyTable
from tests.support.clock import FakeClock
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import pod, policy
from tests.unit.cost.test_proxy_products import Steps

FEW = 200
ALL: dict[str, Any] = {"namespaceSelector": {}}
POLICIES: dict[str, dict[str, Any]] = {
    "peers": {"ingress": [{"from": [ALL, {"podSelector": {}, **ALL}]}]},
    "named ports": {"policyTypes": ["Egress"], "egress": [{"to": [ALL], "ports": [{"port": "http"}, {"port": "dns"}]}]},
    "named ports of all pods": {
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": "http"}]}],
    },
}


def member(number: int, address: int) -> PodFacts | None:
    ip = f"10.{64 + (address >> 16)}.{address >> 8 & 255}.{address & 255}"
    return facts_of(pod(f"p{number}", ip, namespace="far", node="node-2", ports={"http": ("TCP", 80)}), "node-1")


class Node:
    """A node with a pod that a policy isolates, whose peers have many members."""

    def __init__(self, members: int, spec: dict[str, Any]) -> None:
        self.table, self.writer = PolicyTable(), RecordingWriter()
        self.backend = PolicyBackend(self.writer, 4, clock=FakeClock())
        self.rulesets = RulesetBuilder(self.table, 4)
        for name in ("default", "far"):
            self.table.set_namespace(name, {})
        self.table.set_pod("default/web", facts_of(pod("web", "10.244.1.2"), "node-1"))
        for number in range(members):
            self.table.set_pod(f"far/p{number}", member(number, number))
        self.table.set_policy(parse(policy("p", **spec)))

    async def write(self) -> None:
        for _ in self.rulesets.prepare():
            pass
        await self.backend.put(self.rulesets.build())

    async def event(self, key: str, facts: PodFacts | None) -> int:
        """Return the lines of a pod's event."""
        with Steps() as steps:
            assert self.table.set_pod(key, facts)
            await self.write()
        assert self.writer.contents.elements == flatten(self.backend._shadow.current)
        return steps.count


async def lines(members: int, spec: dict[str, Any]) -> list[int]:
    """Return the lines of ten pods that come, change their address, and go."""
    node = Node(members, spec)
    await node.write()
    found = []
    for first in (0, 500, None):
        found.append(0)
        for number in range(members, members + 10):
            facts = None if first is None else member(number, first + number)
            found[-1] += await node.event(f"far/p{number}", facts)
    return found


@pytest.mark.parametrize("what", POLICIES)
async def test_a_member_that_changes_costs_the_same_beside_fifty_times_as_many(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_changes, "LARGE", math.inf)  # lines of other threads are not counted
    few, many = await lines(FEW, POLICIES[what]), await lines(50 * FEW, POLICIES[what])
    assert all(more < 2 * less for less, more in zip(few, many, strict=True)), (few, many)


async def test_a_change_of_few_of_many_members_is_made_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(10 * FEW, POLICIES["peers"])
    await node.write()

    async def compute_sized(size: int, function: Any) -> Any:
        assert size < large_changes.LARGE
        return function()

    monkeypatch.setattr(large_changes, "compute_sized", compute_sized)
    await node.event("far/more", member(10 * FEW, 10 * FEW))


async def test_elements_are_kept_only_while_a_pod_of_this_node_has_them() -> None:
    node = Node(FEW, POLICIES["peers"])
    await node.write()
    assert sum(len(each._elements) for each in node.table.selections._known.values())
    assert node.table.set_pod("default/web", None)
    await node.write()
    assert not sum(len(each._elements) for each in node.table.selections._known.values())
