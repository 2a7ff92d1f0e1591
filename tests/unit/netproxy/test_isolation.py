"""Policies that deny everything if the kernel rejects them or a write takes too long: those of the namespaces at fault."""

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from kube.informer import Change
from netproxy.errors import UnansweredError
from netproxy.policy import table as table_module
from netproxy.policy.family_writer import RETRY
from netproxy.policy.policy_search import MAX_CHECKS, by_cost, namespace_of, search
from netproxy.policy.retries import FIRST_RETRY, LAST_RETRY, Retries
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import PolicyTracer, pod, policy
from tests.unit.netproxy.test_failed_policies import Refusing, about, cluster, enforcing


class Kernel:
    """Refuses policies that are bad, and whatever costs too much together."""

    def __init__(self, costs: dict[str, int], bad: Collection[str], most: int) -> None:
        self.costs, self.bad, self.most, self.calls = costs, frozenset(bad), most, 0

    async def refuses(self, keys: Collection[str]) -> bool:
        self.calls += 1
        return bool(self.bad & set(keys)) or sum(self.costs[key] for key in keys) > self.most


def some_costs(chance: random.Random) -> dict[str, int]:
    names = [f"ns{number}" for number in range(chance.randrange(1, 12))]
    large = chance.choice(names)
    return {
        f"{name}/p{number}": chance.randrange(1, 1000 if name == large else 30)
        for name in names
        for number in range(chance.randrange(1, 40))
    }


@pytest.mark.parametrize("seed", range(100))
async def test_a_namespace_that_takes_no_more_than_its_share_is_closed_for_no_other(seed: int) -> None:
    chance = random.Random(seed)
    costs = some_costs(chance)
    totals: Counter[str] = Counter()
    for key, cost in costs.items():
        totals[namespace_of(key)] += cost
    culprit = chance.choice([*totals])
    mine = [key for key in costs if namespace_of(key) == culprit]
    bad = chance.sample(mine, min(len(mine), chance.randrange(4)))
    most = chance.choice([10**9, sum(costs.values()) // chance.randrange(2, 9)])
    kernel = Kernel(costs, bad, most)
    if not await kernel.refuses(costs):
        return
    kernel.calls = 0
    found = await search(costs, kernel.refuses)
    assert not await kernel.refuses(costs.keys() - found)
    for name, total in totals.items():
        if name != culprit and total <= most / len(totals):
            assert not [key for key in found if namespace_of(key) == name]
    if most == 10**9:
        assert found == set(bad)
    assert kernel.calls < 100


@pytest.mark.parametrize("evil", [1, 40, 400])
async def test_a_search_among_many_namespaces_ends_after_so_many_offers_and_closes_few_others(evil: int) -> None:
    chance, names = random.Random(evil), [f"ns{number:03}" for number in range(400)]
    costs = {f"{name}/p{number}": 1 for name in names for number in range(20)}
    guilty = set(chance.sample(names, evil))
    kernel = Kernel(costs, [f"{name}/p{number}" for name in guilty for number in range(5)], 10**9)
    found = await search(costs, kernel.refuses)
    assert not await kernel.refuses(costs.keys() - found)
    assert kernel.calls < MAX_CHECKS + 40
    assert len({namespace_of(key) for key in found} - guilty) <= (3 * evil if evil > 1 else 0)


async def test_policies_that_are_refused_only_together_are_closed_the_largest_first_and_no_more_than_needed() -> None:
    costs = {f"evil/p{number}": 100 + number for number in range(50)} | {f"good/p{number}": 10 for number in range(50)}
    kernel = Kernel(costs, (), 2000)
    found = await search(costs, kernel.refuses)
    assert found == set(by_cost(costs)[: len(found)])
    assert {namespace_of(key) for key in found} == {"evil"}
    assert await kernel.refuses(costs.keys() - found | {by_cost(costs)[len(found) - 1]})


class Slow(RecordingWriter):
    """Is not ready in time with texts of more rules than it may have."""

    most = 10**9

    def _after(self, text: str) -> Any:
        if text.count("add rule") > self.most:
            raise UnansweredError("still running after 60 s, killed")
        return super()._after(text)


def of_two_namespaces(large: int) -> MemoryAPI:
    """Return a cluster in which each of two namespaces has a pod here, and one has large policies."""
    api = MemoryAPI()
    peers = [{"podSelector": {"matchLabels": {"app": f"a{number}"}}} for number in range(90)]
    ports = [{"port": f"p{number}"} for number in range(10)]
    rule = {"from": [{"namespaceSelector": {}}, *peers], "ports": [{"protocol": "TCP"}]}
    for each in (
        *(SlimNamespace(SlimMeta(name=name)) for name in ("evil", "good")),
        pod("a", "10.244.1.2", namespace="evil"),
        pod("b", "10.244.1.3", namespace="good"),
        policy("small", "good", ingress=[{"from": [{"namespaceSelector": {}}]}]),
        *(policy(f"p{n}", "evil", ingress=[rule, {"from": peers[n:], "ports": ports}]) for n in range(large)),
    ):
        api.put(each)
    return api


async def test_a_write_that_takes_too_long_closes_policies_of_the_namespace_that_costs_most_until_they_are_in_time() -> (
    None
):
    writer = Slow()
    writer.most = 1500
    async with enforcing(of_two_namespaces(4), writer) as watched:
        assert not watched.enforcer.started.is_set()
        await watched.clock.advance(RETRY)  # half of the rules were too many
        await settle(200)
        assert watched.enforcer.started.is_set()
        assert PolicyTracer(writer.contents).allows("10.244.1.2", "10.244.1.3", 80)
        assert 0 < len(watched.reported) < 4
        assert all("too long" in each and not each.startswith("small") for each in watched.reported)
        closed = watched.enforcer._families[0].rulesets.closed
        await watched.clock.advance(FIRST_RETRY)
        await watched.enforcer.verify()
        await settle(200)
        assert len(watched.enforcer._families[0].rulesets.closed) == len(closed) - 1
        writer.most = 10**9
        for _ in range(4):
            await watched.clock.advance(LAST_RETRY)
            await watched.enforcer.verify()
            await settle(200)
        assert not watched.enforcer._families[0].rulesets.closed


async def test_a_small_table_that_takes_too_long_closes_nothing() -> None:
    writer = Slow()
    writer.most = 0
    async with enforcing(cluster(about("db", {"from": [{"namespaceSelector": {}}]})), writer) as watched:
        assert not watched.enforcer.started.is_set()
        assert watched.reported == []
        writer.most = 10**9
        await watched.clock.advance(1)
        await settle(80)
        assert watched.enforcer.started.is_set()


async def test_a_refused_policy_is_retried_after_a_back_off_and_logged_once() -> None:
    writer = Refusing("666")
    api = cluster(about("web", {"from": [{"namespaceSelector": {}}], "ports": [{"port": 80}, {"port": 666}]}))
    async with enforcing(api, writer) as watched:
        for wait in (FIRST_RETRY, 2 * FIRST_RETRY):
            await watched.clock.advance(wait)
            await watched.enforcer.verify()
            await settle(200)
            assert watched.reported == ["web: the kernel refuses its rules"]
        writer.words = ()
        await watched.clock.advance(2 * FIRST_RETRY)
        await watched.enforcer.verify()
        await settle(200)
        assert not PolicyTracer(writer.contents).allows("10.244.2.2", "10.244.1.2", 80)
        await watched.clock.advance(2 * FIRST_RETRY)
        await watched.enforcer.verify()
        await settle(200)
        assert PolicyTracer(writer.contents).allows("10.244.2.2", "10.244.1.2", 80)


async def test_a_policy_that_fails_again_and_again_is_not_tried_with_each_change() -> None:
    clock, closed = FakeClock(), frozenset({"a/b"})
    retries = Retries(clock)
    assert retries.failed("a/b")
    assert retries.changed("a/b")
    assert not retries.failed("a/b")
    assert not retries.changed("a/b")
    assert retries.next_key(closed) == ""
    await clock.advance(FIRST_RETRY)
    assert retries.next_key(closed) == "a/b"
    retries.written(frozenset())
    assert retries.failed("a/b")


class Held(Refusing):
    """Refuses texts with some words, and carries out none while it is closed."""

    def __init__(self, *words: str) -> None:
        super().__init__(*words)
        self.open = asyncio.Event()
        self.open.set()

    async def apply(self, text: str) -> None:
        await self.open.wait()
        await super().apply(text)


def of_port(port: int) -> Any:
    return about("web", {"from": [{"namespaceSelector": {}}, {"podSelector": {}}], "ports": [{"port": port}]})


async def test_a_refused_policy_that_is_tried_again_during_a_write_keeps_its_back_off() -> None:
    writer = Held("666")
    api = cluster(of_port(666))
    async with enforcing(api, writer) as watched:
        await watched.clock.advance(FIRST_RETRY)
        writer.open.clear()
        api.put(pod("web-2", "10.244.1.4", labels={"app": "web"}))
        await settle(80)
        looking = asyncio.create_task(watched.enforcer.verify())
        await settle(80)
        assert not watched.enforcer._families[0].rulesets.closed
        writer.open.set()
        await looking
        await settle(200)
        assert watched.enforcer._families[0].rulesets.closed == {"default/web"}
        assert len(watched.reported) == 1
        await watched.clock.advance(FIRST_RETRY)
        assert not watched.enforcer._families[0].reopen()
        await watched.clock.advance(FIRST_RETRY)
        assert watched.enforcer._families[0].reopen()


async def test_a_refused_policy_that_is_changed_stays_closed_until_its_new_version_is_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module, "SLICE", 1)
    async with enforcing(cluster(of_port(666)), Refusing("666")) as watched:
        rulesets, table = watched.enforcer._families[0].rulesets, watched.enforcer._table
        changed = about("web", {"from": [{"podSelector": {"matchLabels": {"app": each}}} for each in "abc"]})
        before = table.policies["default/web"]
        assert rulesets.closed == {"default/web"}
        change = watched.enforcer._waiting["default/web"] = Change("MODIFIED", of_port(666), changed)
        for _ in watched.enforcer._store_policy(change.key):
            assert (table.policies["default/web"] is before) == bool(rulesets.closed)
        assert table.policies["default/web"] is not before and not rulesets.closed
