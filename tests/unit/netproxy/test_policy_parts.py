"""A ruleset that is made from parts of the last one is the ruleset that is made from nothing, whatever changed between."""

import random

import pytest

from netproxy.policy.backend import PolicyBackend
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import facts_of
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.ruleset import flatten
from netproxy.policy.table import PolicyTable
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import pod, policy, random_policy


def change(table: PolicyTable, chance: random.Random) -> None:
    match chance.randrange(8):
        case 0:
            table.set_namespace(chance.choice(["default", "other"]), {"team": chance.choice("ab")})
        case 1:
            table.delete_policy(chance.choice(list(table.policies) or [""]))
        case 2 | 3:
            table.set_policy(parse(random_policy(chance.randrange(6), chance)))
        case 4 if table.known.pods:
            table.set_pod(chance.choice(list(table.known.pods)), None)
        case _:
            number = chance.randrange(8)
            made = pod(
                f"p{number}",
                *([f"10.244.1.{number // chance.randrange(1, 3)}"] if chance.random() < 0.8 else []),
                namespace=chance.choice(["default", "other"]),
                node=chance.choice(["node-1", "node-2"]),
                labels={"app": chance.choice(["web", "db"])},
                ports={chance.choice(["http", "dns"]): ("TCP", chance.choice([80, 8080]))},
            )
            table.set_pod(f"{made.metadata.namespace}/p{number}", facts_of(made, "node-1"))


def filled_anew(table: PolicyTable) -> PolicyTable:
    """Return a table with the same policies, pods and namespaces, in which nothing has changed."""
    made = PolicyTable()
    for name in ("default", "other"):
        made.set_namespace(name, table.known.labels_of(name))
    for key, facts in table.known.pods.items():
        made.set_pod(key, facts)
    for each in table.policies.values():
        made.set_policy(each)
    return made


@pytest.mark.parametrize("seed", range(20))
async def test_after_any_changes_parts_and_kernel_are_what_a_new_start_would_make(seed: int) -> None:
    chance, table, writer = random.Random(seed), PolicyTable(), RecordingWriter()
    rulesets, backend = RulesetBuilder(table, 4), PolicyBackend(writer, 4)
    rulesets.ranges = ("10.244.1.0/24",)
    for _ in range(60):
        for _ in range(chance.randrange(1, 4)):
            change(table, chance)
        if table.policies and chance.random() < 0.1:
            rulesets.closed = frozenset({chance.choice(list(table.policies))})
        if chance.random() < 0.2:
            rulesets.build(closed=set(list(table.policies)[::2]))  # a search for what the kernel refuses
        made = rulesets.build()
        await backend.put(made)
        fresh = RulesetBuilder(filled_anew(table), 4)
        fresh.ranges, fresh.closed = rulesets.ranges, rulesets.closed
        wanted = fresh.build()
        assert (made.declarations, flatten(made), made.chains) == (wanted.declarations, flatten(wanted), wanted.chains)
        assert writer.contents.elements == flatten(wanted)
        assert {name: tuple(rules) for name, rules in writer.contents.rules.items()} == wanted.chains
        assert sorted(writer.contents.sets) == sorted(wanted.declarations)


def test_a_table_knows_pods_and_sizes_after_a_policy_and_its_selections_have_gone_and_come_back() -> None:
    table = PolicyTable()
    table.set_namespace("default", {})
    rulesets = RulesetBuilder(table, 4)
    wide = policy("wide", ingress=[{"from": [{"namespaceSelector": {}}]}])
    table.set_policy(parse(wide))
    table.set_pod("a", facts_of(pod("a", "10.244.1.1"), "node-1"))
    assert "10.244.1.1" in str(flatten(rulesets.build()))
    table.delete_policy("default/wide")
    table.set_pod("b", facts_of(pod("b", "10.244.2.2", node="node-2"), "node-1"))
    table.set_policy(parse(wide))
    assert "10.244.2.2" in str(flatten(rulesets.build()))
