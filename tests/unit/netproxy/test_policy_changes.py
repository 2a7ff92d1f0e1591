"""Changes of network policies: the deltas from one ruleset to the next, and repair."""

import asyncio
import random

import pytest

from kube.api import networking_v1
from netproxy.metrics import NFTABLES_FAILURES
from netproxy.nft.table import Contents
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import facts_of
from netproxy.policy.rules import RulesetBuilder
from netproxy.slim_objects import SlimPod
from tests.support.clock import FakeClock, settle
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import pod, policy, random_policy
from tests.support.policy_tables import (
    WEB,
    filled,
    made,
)


async def test_a_change_of_modes_leaves_the_chains_of_the_new_one() -> None:
    table, writer = filled(policy("deny")), RecordingWriter()
    for ipvs in (False, True, False):
        await PolicyBackend(writer, 4, clock=FakeClock()).put(made(table, ipvs=ipvs))
        assert set(writer.contents.rules) == set(made(table, ipvs=ipvs).chains)


async def test_a_pod_more_in_a_peer_changes_one_element_and_no_rule() -> None:
    table = filled(policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}]))
    writer, rulesets = RecordingWriter(), RulesetBuilder(table, 4)
    backend = PolicyBackend(writer, 4, clock=FakeClock())
    await backend.put(rulesets.build())
    new = pod("new", "10.244.2.99", namespace="other", node="node-2")
    assert table.set_pod("other/new", facts_of(new, "node-1"))
    await backend.put(rulesets.build())
    (line,) = writer.applied[-1].splitlines()
    assert line.startswith("add element ip wherry-policy pods-")
    assert line.endswith("{ 10.244.2.99 }")
    elsewhere = pod("elsewhere", "10.244.2.98", node="node-2")
    table.set_pod("default/elsewhere", facts_of(elsewhere, "node-1"))
    written = len(writer.applied)
    await backend.put(rulesets.build())
    assert len(writer.applied) == written  # a pod of another node that nobody names as a peer


@pytest.mark.parametrize("seed", range(6))
async def test_after_any_sequence_of_changes_deltas_equal_a_fresh_start(seed: int) -> None:
    """Pods, namespaces and policies come, change and go; the kernel's refusals are the recording writer's."""
    chance = random.Random(seed)
    table, writer = filled(pods=[]), RecordingWriter()
    rulesets = RulesetBuilder(table, 4)
    rulesets.ranges = ("10.244.1.0/24",)
    backend = PolicyBackend(writer, 4, clock=FakeClock())
    pods: dict[str, SlimPod] = {}
    policies: dict[str, networking_v1.NetworkPolicy] = {}
    for _ in range(150):
        kind, number = chance.randrange(5), chance.randrange(12)
        if kind < 2:
            name = f"pod{number}"
            if chance.random() < 0.3:
                pods.pop(name, None)
                table.set_pod(f"default/{name}", None) if f"default/{name}" in table.known.pods else None
            else:
                ips = (f"10.244.{1 + number % 2}.{10 + number}",) if chance.random() < 0.8 else ()
                ports = {"http": ("TCP", 8000 + chance.randrange(3))}
                pods[name] = pod(
                    name, *ips, node=f"node-{1 + number % 2}", labels={"app": chance.choice(["web", "db"])}, ports=ports
                )
                table.set_pod(f"default/{name}", facts_of(pods[name], "node-1"))
        elif kind == 2:
            table.set_namespace("default", {"team": chance.choice("ab")})
        elif chance.random() < 0.3:
            policies.pop(f"p{number}", None)
            for namespace in ("default", "other"):
                table.delete_policy(f"{namespace}/p{number}")
        else:
            new = random_policy(number, chance)
            for namespace in ("default", "other"):
                table.delete_policy(f"{namespace}/p{number}")
            policies[f"p{number}"] = new
            table.set_policy(parse(new))
        await backend.put(rulesets.build())
    fresh_table = filled(*policies.values(), pods=list(pods.values()))
    fresh_table.set_namespace("default", table.known.labels_of("default"))
    fresh, other = RecordingWriter(), RulesetBuilder(fresh_table, 4)
    other.ranges = ("10.244.1.0/24",)
    await PolicyBackend(fresh, 4, clock=FakeClock()).put(other.build())
    assert writer.contents.elements == fresh.contents.elements
    assert writer.contents.rules == fresh.contents.rules
    assert sorted(writer.contents.sets) == sorted(fresh.contents.sets)


async def test_a_change_others_made_is_repaired_and_a_restart_writes_no_element() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    ruleset = made(filled(policy("deny")))
    backend = PolicyBackend(writer, 4, clock=clock)
    await backend.put(ruleset)
    whole = await writer.read()
    assert not await backend.verify()
    writer.contents.elements.pop(("ingress-pods", WEB))
    writer.generation += 1
    await clock.advance(5)
    assert await backend.verify()
    assert (await writer.read()).elements == whole.elements
    await PolicyBackend(writer, 4, clock=clock).put(made(filled(policy("deny"))))
    assert "element" not in writer.applied[-1]
    await backend.cleanup()
    assert not writer.there


class SlowWriter(RecordingWriter):
    """A table whose reads, changes and check of existence end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.go_on = {name: asyncio.Event() for name in ("read", "apply", "exists")}

    async def _wait(self, name: str) -> None:
        if name in self.held:
            await self.go_on[name].wait()

    async def read(self) -> Contents:
        found = await super().read()
        await self._wait("read")
        return found

    async def apply(self, text: str) -> None:
        await self._wait("apply")
        await super().apply(text)

    async def exists(self) -> bool:
        await self._wait("exists")
        return await super().exists()


@pytest.mark.parametrize("step", ["read", "apply"])
async def test_a_table_that_is_removed_during_a_comparison_stays_removed(step: str) -> None:
    """The comparison sees that others changed an element; the last policy is deleted while it reads, or repairs."""
    writer, clock = SlowWriter(), FakeClock()
    backend, ruleset = PolicyBackend(writer, 4, clock=clock), made(filled(policy("deny")))
    await backend.put(ruleset)
    assert not await backend.verify()
    if step == "apply":
        writer.contents.elements.pop(("ingress-pods", WEB))
    writer.generation += 1
    await clock.advance(5)
    writer.held = {step, "exists"}
    comparison = asyncio.create_task(backend.verify())
    await settle(20)
    removal = asyncio.create_task(backend.cleanup())
    await settle(20)
    writer.go_on[step].set()
    await settle(20)
    writer.go_on["exists"].set()
    await removal
    assert await comparison == (step == "apply")
    assert not writer.there
    writer.held, refused = set(), _refused()
    await backend.put(ruleset)
    assert (await writer.read()).rules.keys() == ruleset.chains.keys()
    assert _refused() == refused


def _refused() -> float:
    (metric,) = NFTABLES_FAILURES.collect()
    return sum(sample.value for sample in metric.samples if not sample.name.endswith("_created"))
