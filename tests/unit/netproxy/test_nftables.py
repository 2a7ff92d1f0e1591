"""The nftables mode's deltas, reconciliation and repair, against a table in memory."""

import dataclasses

import pytest

from netproxy.endpoints import NodeView
from netproxy.errors import WriteError
from netproxy.model import ServicePort, plan_service
from netproxy.nft.listing import decode, parse
from netproxy.nft.table import Contents
from netproxy.nftables import chains
from netproxy.nftables.backend import NFTablesBackend
from netproxy.settings import FixedChainSettings, RuleSettings
from tests.support.churn import Churn
from tests.support.clock import FakeClock
from tests.support.nft_in_memory import RecordingWriter
from tests.support.services import service, slice_of

SETTINGS = FixedChainSettings(service_cidrs=("10.96.0.0/12",), cluster_cidrs=("10.244.0.0/16",))


def backend(writer: RecordingWriter, clock: FakeClock | None = None) -> NFTablesBackend:
    return NFTablesBackend(writer, RuleSettings(local_cidrs=("10.244.0.0/16",)), SETTINGS, clock=clock or FakeClock())


def web(name: str = "web", ip: str = "10.96.5.1", *endpoints: str, **spec: object) -> tuple[ServicePort, ...]:
    return plan_service(
        service(name, ip, **spec), [slice_of(name, *endpoints)] if endpoints else [], NodeView("node-1")
    )


async def test_a_new_service_writes_elements_and_no_rule() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({f"default/s{n}": web(f"s{n}", f"10.96.6.{n}", "10.244.1.2") for n in range(50)})
    writer.applied.clear()
    await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    (text,) = writer.applied
    assert "chain" not in text
    assert text.count("\n") == 2


async def test_chains_depend_on_the_number_of_endpoints_and_not_of_services() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({})
    fixed = len(writer.contents.rules)
    await proxy.apply({f"default/s{n}": web(f"s{n}", f"10.96.6.{n}", "10.244.1.2", "10.244.1.3") for n in range(100)})
    assert len(writer.contents.rules) == fixed + 1
    await proxy.apply({f"default/s{n}": () for n in range(100)})
    assert len(writer.contents.rules) == fixed
    assert writer.contents.elements == {}


def sticky(name: str, ip: str, *endpoints: str) -> tuple[ServicePort, ...]:
    return web(name, ip, *endpoints, session_affinity="ClientIP")


async def test_affinity_has_chains_of_its_own_and_a_set_of_its_namespace_which_go_with_it() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({})
    before = await writer.read()
    await proxy.apply({"default/web": sticky("web", "10.96.5.1", "10.244.1.2", "10.244.1.3")})
    assert sum("timeout 10800s" in text for text in writer.applied[-1].splitlines()) == 1
    await proxy.apply({"default/other": sticky("other", "10.96.5.2", "10.244.1.2", "10.244.1.3")})
    assert "add set" not in writer.applied[-1]
    await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    assert "delete set" not in writer.applied[-1]
    await proxy.apply({"default/web": (), "default/other": ()})
    assert await writer.read() == before


async def test_affinity_takes_no_more_sets_with_more_services_and_endpoints() -> None:
    """The kernel searches sets one by one, also those that nft makes of a map in a rule: the square of their number."""
    sets = list[int]()
    for count in (2, 8):
        writer = RecordingWriter()
        proxy = backend(writer)
        endpoints = [f"10.244.1.{n + 1}" for n in range(count)]
        await proxy.start({f"default/s{n}": sticky(f"s{n}", f"10.96.5.{n}", *endpoints) for n in range(count)})
        lines = "\n".join(writer.applied).splitlines()
        sets.append(sum(line.startswith("add set") or "vmap {" in line for line in lines))
    assert sets[0] == sets[1]


async def test_source_ranges_are_no_sets_of_ranges_and_change_one_by_one() -> None:
    """nft reads all sets of ranges from the kernel at each change of any table."""
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({})
    before = await writer.read()
    ranges = [f"192.0.{n}.0/24" for n in range(9)] + ["198.51.100.0/25"]

    def balanced(*ranges: str) -> tuple[ServicePort, ...]:
        return web(
            "web", "10.96.5.1", "10.244.1.2",
            type="LoadBalancer", ingress=("203.0.113.1",), load_balancer_source_ranges=list(ranges),
        )  # fmt: skip

    await proxy.apply({"default/web": balanced(*ranges)})
    assert "interval" not in "".join(writer.applied)
    await proxy.apply({"default/web": balanced(*ranges, "192.0.9.0/24")})
    (line,) = writer.applied[-1].splitlines()
    assert line.startswith("add element") and line.endswith("{ 192.0.9.0 }")
    await proxy.apply({"default/web": ()})
    assert await writer.read() == before


async def test_a_restart_touches_no_element_that_is_right() -> None:
    writer = RecordingWriter()
    state = {"default/web": web("web", "10.96.5.1", "10.244.1.2"), "default/none": web("none", "10.96.5.2")}
    await backend(writer).start(state)
    before = await writer.read()
    writer.applied.clear()
    await backend(writer).start(state)
    assert all("element" not in text for text in writer.applied)
    assert await writer.read() == before


async def test_two_services_that_claim_one_address_do_not_break_each_other() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({})
    first = web("a", "10.96.5.1", "10.244.1.2", external_ips=["192.0.2.7"])
    second = web("b", "10.96.5.2", "10.244.1.2", "10.244.1.3", external_ips=["192.0.2.7"])
    await proxy.apply({"default/a": first})
    await proxy.apply({"default/b": second})
    await proxy.apply({"default/a": ()})
    assert writer.contents.elements[chains.SERVICES, "192.0.2.7 . tcp . 80"] == "goto external-tcp-2"
    assert (chains.HAIRPIN, "10.244.1.2 . 10.244.1.2") in writer.contents.elements
    await proxy.apply({"default/b": ()})
    assert writer.contents.elements == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda held: held.elements.clear(),
        lambda held: held.rules["nat-output"].clear(),
        lambda held: held.rules["services"].append("drop"),
        lambda held: held.elements.__setitem__((chains.NO_ENDPOINT_SERVICES, "10.96.5.1 . tcp . 80"), "drop"),
    ],
)
async def test_damage_is_noticed_and_repaired(damage: object) -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy = backend(writer, clock)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    whole = await writer.read()
    assert not await proxy.verify()
    damage(writer.contents)  # type: ignore[operator]
    writer.generation += 1
    await clock.advance(5)
    assert await proxy.verify()
    assert await writer.read() == whole
    await clock.advance(5)
    assert not await proxy.verify()


async def test_rules_damaged_while_a_comparison_is_put_off_are_not_taken_for_ours() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy, good = backend(writer, clock), writer.apply

    async def slowly(text: str) -> None:
        await clock.advance(0.5)  # the next comparison is then put off for 10 s
        await good(text)

    writer.apply = slowly  # type: ignore[method-assign]
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    whole = await writer.read()
    writer.contents.rules["nat-output"].clear()
    writer.generation += 1
    await clock.advance(5)
    assert not await proxy.verify()
    await clock.advance(6)
    await proxy.verify()
    assert await writer.read() == whole


async def test_changes_by_others_outside_our_table_are_no_damage() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy = backend(writer, clock)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    assert not await proxy.verify()  # learns how nft describes our rules
    writer.applied.clear()
    writer.generation += 1
    await clock.advance(5)
    assert not await proxy.verify()
    assert writer.applied == []


async def test_a_table_that_is_gone_is_made_anew_after_a_refused_delta() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    writer.contents, writer.there = Contents(), False
    await proxy.apply({"default/new": web("new", "10.96.5.9", "10.244.1.3")})
    keys = {key for name, key in writer.contents.elements if name == chains.SERVICES}
    assert keys == {"10.96.5.1 . tcp . 80", "10.96.5.9 . tcp . 80"}


async def test_a_table_of_other_types_is_replaced() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    good = writer.apply
    texts: list[str] = []

    async def refuse_first(text: str) -> None:
        texts.append(text)
        if len(texts) == 1:
            raise WriteError("conflicting types")
        await good(text)

    writer.apply = refuse_first  # type: ignore[method-assign]
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    assert texts[1].startswith("add table ip kube-proxy\ndelete table ip kube-proxy\nadd table ip kube-proxy\n")


@pytest.mark.parametrize("seed", range(5))
async def test_after_any_sequence_of_changes_deltas_equal_a_fresh_start(seed: int) -> None:
    churn = Churn(seed)
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({})
    for _ in range(150):
        churn.step()
        await proxy.apply(await churn.table.take_changes())
    assert not any("refused" in text for text in writer.applied)
    fresh = RecordingWriter()
    await backend(fresh).start(await churn.plan())
    assert writer.contents.elements == fresh.contents.elements
    assert writer.contents.rules == fresh.contents.rules
    assert sorted(writer.contents.sets) == sorted(fresh.contents.sets)


def test_nfts_json_is_read_in_our_own_words() -> None:
    document = {
        "nftables": [
            {"metainfo": {}},
            {
                "map": {
                    "name": "m",
                    "map": "verdict",
                    "elem": [[{"concat": ["10.96.0.1", "tcp", 80]}, {"goto": {"target": "x"}}]],
                }
            },
            {"map": {"name": "n", "map": "verdict", "elem": [[{"concat": ["tcp", 80]}, {"drop": None}]]}},
            {"set": {"name": "s", "elem": [{"concat": ["10.96.0.1", {"prefix": {"addr": "1.2.3.0", "len": 24}}]}]}},
            {"set": {"name": "clients-x", "flags": ["timeout", "dynamic"], "elem": ["9.9.9.9"]}},
            {"chain": {"name": "empty"}},
            {"rule": {"chain": "c", "expr": [{"drop": None}]}},
        ]
    }
    held = parse(document)
    assert held.elements == {
        ("m", "10.96.0.1 . tcp . 80"): "goto x",
        ("n", "tcp . 80"): "drop",
        ("s", "10.96.0.1 . 1.2.3.0/24"): "",
    }
    assert held.rules == {"empty": [], "c": [[{"drop": None}]]}
    assert held.sets == ["m", "n", "s", "clients-x"]


async def test_new_pod_ranges_rewrite_only_the_chains_that_depend_on_them() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    writer.applied.clear()
    settings = dataclasses.replace(SETTINGS, pod_cidrs=("10.244.1.0/24",))
    await proxy.change_fixed_chains(settings)
    (text,) = writer.applied
    assert "10.244.1.0/24" in text
    assert "10.96.5.1" not in text
    await proxy.change_fixed_chains(settings)
    assert len(writer.applied) == 1
    fresh = RecordingWriter()
    other = NFTablesBackend(fresh, RuleSettings(local_cidrs=("10.244.0.0/16",)), settings)
    await other.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    assert writer.contents == fresh.contents


def test_a_listing_is_read_without_decoding_the_expressions_of_its_rules() -> None:
    text = """{"nftables": [{"metainfo": {"version": "1"}}, {"table": {"family": "ip", "name": "t", "handle": 1}},
        {"chain": {"family": "ip", "table": "t", "name": "empty", "handle": 2}},
        {"set": {"family": "ip", "name": "s", "table": "t", "type": "ipv4_addr", "handle": 3, "elem": ["10.0.0.1"]}},
        {"map": {"name": "m", "type": "ipv4_addr", "map": "verdict", "elem": [["10.0.0.1", {"goto": {"target": "c"}}]]}},
        {"rule": {"family": "ip", "table": "t", "chain": "c", "handle": 9, "expr": [{"accept": null}]}}]}"""
    found = parse(decode(text))
    assert found.rules == {"empty": [], "c": [b'[{"accept": null}]']}
    assert found.elements == {("s", "10.0.0.1"): "", ("m", "10.0.0.1"): "goto c"}
    assert found.sets == ["s", "m"]
