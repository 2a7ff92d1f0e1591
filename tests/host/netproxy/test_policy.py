"""Network policies with real packets: between pods, through Services, from outside, while a pod starts."""

import asyncio
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from netproxy.nft.writer import NftWriter
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import facts_of
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.ruleset import TABLE, flatten
from netproxy.policy.table import PolicyTable
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.host.netproxy.conftest import (
    CLIENT_IP,
    NODE_IP,
    PODS,
    Site,
    populated,
    running,
    talk,
    until,
    until_echo,
)
from tests.support.memory_api import MemoryAPI
from tests.support.netns import namespaces
from tests.support.policies import pod, policy, random_policy
from tests.support.services import port, service, slice_of

A, B = PODS["pod-a"], PODS["pod-b"]
WEB = "10.96.5.1"


def cluster_with(*objects: object) -> MemoryAPI:
    web = service("web", WEB, port("http", 80, node_port=30080), type="NodePort")
    return populated(
        SlimNamespace(SlimMeta(name="default", labels={"team": "a"})),
        pod("a", A, labels={"app": "a"}, ports={"http": ("TCP", 8080)}),
        pod("b", B, labels={"app": "b"}, ports={"http": ("TCP", 8080)}),
        web,
        slice_of("web", A),
        *objects,
    )


def answers(site: Site) -> Callable[[], dict[str, bool]]:
    """Ask for pod-a's page in every way there is."""

    ways = {
        "host": (site.node, A, 8080),
        "pod": (site.pods["pod-b"], A, 8080),
        "service": (site.pods["pod-b"], WEB, 80),
        "itself": (site.pods["pod-a"], WEB, 80),
        "outside": (site.client, A, 8080),
        "node port": (site.client, NODE_IP, 30080),
    }

    def ask() -> dict[str, bool]:
        with ThreadPoolExecutor(len(ways)) as pool:
            pages = pool.map(lambda way: site.fetch(*way, 1), ways.values())
        return {name: bool(page) for name, page in zip(ways, pages, strict=True)}

    return ask


async def settle(site: Site, what: str, **expected: bool) -> None:
    wanted = {"host": True, "itself": True} | {key.replace("_", " "): value for key, value in expected.items()}
    seen: dict[str, bool] = {}

    def look() -> bool:
        seen.clear()
        seen.update(answers(site)())
        return seen == wanted

    try:
        await until(look, what)
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from None


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
def test_who_may_reach_a_pod_directly_through_its_service_and_from_outside(site: Site) -> None:
    async def check() -> None:
        deny = policy("deny", podSelector={"matchLabels": {"app": "a"}})
        api = cluster_with()
        async with running(site.config, api):
            await settle(site, "open without a policy", pod=True, service=True, outside=True, node_port=True)
            assert TABLE not in await asyncio.to_thread(site.node.run, "nft", "list", "tables")
            api.put(deny)
            await settle(site, "closed to all but the host", pod=False, service=False, outside=False, node_port=False)
            from_b = {"from": [{"podSelector": {"matchLabels": {"app": "b"}}}], "ports": [{"port": "http"}]}
            api.put(policy("b", ingress=[from_b]))
            await settle(site, "open to one pod", pod=True, service=True, outside=False, node_port=False)
            api.put(policy("b", ingress=[{"from": [{"ipBlock": {"cidr": f"{CLIENT_IP}/32"}}]}]))
            await settle(site, "open to the client", pod=False, service=False, outside=True, node_port=True)
        await settle(site, "as it was while nobody runs", pod=False, service=False, outside=True, node_port=True)
        async with running(site.config, api):
            api.remove(deny)
            api.remove(policy("b"))
            await settle(site, "open again", pod=True, service=True, outside=True, node_port=True)
            await until(lambda: TABLE not in site.node.run("nft", "list", "tables"), "the table is gone")

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_what_a_pod_may_send_and_that_an_open_connection_lives_on(site: Site) -> None:
    async def check() -> None:
        await until_echo(site, "pod-b")
        count = talk(site, site.pods["pod-a"], B, 7777)
        api = cluster_with()
        async with running(site.config, api):
            await until(lambda: count() > 2, "the connection is used")
            to_b = {"to": [{"podSelector": {"matchLabels": {"app": "b"}}}], "ports": [{"port": 8000, "endPort": 9000}]}
            api.put(policy("out", podSelector={"matchLabels": {"app": "a"}}, policyTypes=["Egress"], egress=[to_b]))
            await until(lambda: site.error(site.pods["pod-a"], B, 7777) == "ETIMEDOUT", "a new connection is dropped")
            assert await asyncio.to_thread(site.fetch, site.pods["pod-a"], B, 8080) == "pod-b"
            assert await asyncio.to_thread(site.error, site.pods["pod-a"], CLIENT_IP, 22) == "ETIMEDOUT"
            assert (
                await asyncio.to_thread(site.fetch, site.pods["pod-b"], A, 8080) == "pod-a"
            )  # ingress is not spoken of
            before = count()
            await until(lambda: count() > before + 2, "the open connection goes on")

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_a_pod_that_starts_is_closed_before_its_address_is_known(site: Site) -> None:
    async def check() -> None:
        fresh = "10.244.1.77"
        site.pods["pod-b"].run("ip", "address", "add", f"{fresh}/24", "dev", "eth0")
        api = cluster_with(policy("deny", podSelector={"matchLabels": {"app": "new"}}))
        async with running(site.config, api):
            await until(lambda: TABLE in site.node.run("nft", "list", "tables"), "policies are in force")
            assert await asyncio.to_thread(site.error, site.client, fresh, 8080) == "ETIMEDOUT"
            api.put(pod("new", labels={"app": "new"}))
            assert await asyncio.to_thread(site.fetch, site.client, A, 8080) == "pod-a"
            api.put(pod("new", fresh, labels={"app": "new"}))
            api.put(policy("deny", podSelector={"matchLabels": {"app": "new"}}, ingress=[{"ports": [{"port": 8080}]}]))
            await until(lambda: site.fetch(site.client, fresh, 8080, 1) == "pod-b", "open as its policy says")
            assert await asyncio.to_thread(site.error, site.client, fresh, 8081) == "ETIMEDOUT"

    site.node.inside(check)


@pytest.mark.parametrize("family", [4, 6])
def test_the_kernel_takes_every_change_and_holds_what_was_meant(family: int) -> None:
    """Random policies and pods into a real table; afterwards nothing differs from the ruleset, and damage is repaired."""

    async def check() -> None:
        chance, table = random.Random(family), PolicyTable()
        table.set_namespace("default", {"team": "a"})
        table.set_namespace("other", {"team": "b"})
        rulesets, backend = RulesetBuilder(table, family), PolicyBackend(NftWriter(family, TABLE), family)
        rulesets.ranges = ("10.244.1.0/24",) if family == 4 else ("fd00:1::/64",)
        for step in range(60):
            number = chance.randrange(12)
            ip = f"10.244.1.{number + 2}" if family == 4 else f"fd00:1::{number + 2:x}"
            made: Any = pod(
                f"p{number}", ip, labels={"app": chance.choice(["web", "db"])}, ports={"http": ("TCP", 80 + step)}
            )
            table.set_pod(f"default/p{number}", facts_of(made, "node-1"))
            for namespace in ("default", "other"):
                table.delete_policy(f"{namespace}/p{number}")
            if chance.random() < 0.8:
                table.set_policy(parse(random_policy(number, chance, family)))
            await backend.put(rulesets.build())
        assert table.policies
        ip_word = "ip" if family == 4 else "ip6"
        meant = rulesets.build()
        await backend.verify()  # learns how nft describes the rules
        held = await NftWriter(family, TABLE).read()
        assert held.elements == flatten(meant)
        assert {name: len(rules) for name, rules in held.rules.items()} == {
            name: len(rules) for name, rules in meant.chains.items()
        }
        rules = node.run("nft", "-t", "list", "table", ip_word, TABLE)
        await asyncio.to_thread(node.run, "nft", "flush", "chain", ip_word, TABLE, "ingress")
        async with asyncio.timeout(20):
            while not await backend.verify():
                await asyncio.sleep(0.1)
        assert node.run("nft", "-t", "list", "table", ip_word, TABLE) == rules
        await backend.cleanup()
        assert TABLE not in node.run("nft", "list", "tables")

    with namespaces(f"np-p{os.getpid()}") as (node,):
        node.inside(check)
