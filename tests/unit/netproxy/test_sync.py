"""Deltas, reconciliation and repair, against tables in memory that refuse what the kernel refuses."""

import asyncio
import dataclasses
import threading

import pytest

from netproxy import large_changes
from netproxy.errors import WriteError
from netproxy.iptables import backend as iptables_backend
from netproxy.iptables.backend import IPTablesBackend
from netproxy.model import ServicePort, plan_service
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables import restore_text, shadow
from netproxy.xtables.shadow import Fragment
from tests.support.churn import Churn
from tests.support.clock import FakeClock
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.services import port, service, slice_of

SETTINGS = FixedChainSettings(service_cidrs=("10.96.0.0/12",), cluster_cidrs=("10.244.0.0/16",))


def backend(writer: RecordingWriter, clock: FakeClock | None = None) -> IPTablesBackend:
    return IPTablesBackend(writer, RuleSettings(local_cidrs=("10.244.0.0/16",)), SETTINGS, clock=clock or FakeClock())


def web(name: str = "web", ip: str = "10.96.5.1", *endpoints: str) -> tuple[ServicePort, ...]:
    return plan_service(service(name, ip), [slice_of(name, *endpoints)] if endpoints else [])


async def test_a_change_writes_only_the_chains_that_changed() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({f"default/s{n}": web(f"s{n}", f"10.96.6.{n}", "10.244.1.2") for n in range(200)})
    writer.applied.clear()
    await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    (text,) = writer.applied
    assert text.count("\n") < 15
    assert "default/s" not in text
    assert "KUBE-SERVICES - [0:0]" not in text  # the shared chain is not rewritten
    await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2", "10.244.1.3")})
    assert "-I KUBE-SERVICES" not in writer.applied[-1]  # an endpoint more does not touch it at all
    assert "10.244.1.2/32" not in writer.applied[-1]


async def test_an_unchanged_service_writes_nothing() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    writer.applied.clear()
    await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    assert writer.applied == []


async def test_a_deleted_service_leaves_nothing() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({})
    empty = await writer.read()
    await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    await proxy.apply({"default/none": web("none", "10.96.5.2")})
    assert await writer.read() != empty
    await proxy.apply({"default/web": (), "default/none": ()})
    assert await writer.read() == empty


@pytest.mark.parametrize(("count", "deleted"), [(shadow.MANY_DELETED, shadow.MANY_DELETED), (300, 0)])
async def test_many_entries_of_a_shared_chain_are_not_deleted_one_by_one(count: int, deleted: int) -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    numbers = {f"p{n}": n + 1 for n in range(count)}
    many = service("many", "10.96.5.1", *(port(*each) for each in numbers.items()))
    await proxy.start({"default/web": web("web", "10.96.5.2", "10.244.1.2")})
    before = await writer.read()
    await proxy.apply({"default/many": plan_service(many, [slice_of("many", "10.244.1.3", ports=numbers)])})
    await proxy.apply({"default/many": ()})
    assert writer.applied[-1].count("-D KUBE-SERVICES") == deleted
    assert await writer.read() == before
    assert not await proxy._compare(repair=False)


@pytest.mark.parametrize("count", [100, 600])
async def test_a_thread_makes_the_rules_of_a_large_service(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[bool](), iptables_backend.fragment

    def watched(ports: tuple[ServicePort, ...], rules: RuleSettings) -> Fragment:
        made.append(threading.current_thread() is threading.main_thread())
        return make(ports, rules)

    monkeypatch.setattr(iptables_backend, "fragment", watched)
    writer = RecordingWriter()
    proxy = backend(writer)
    many = plan_service(service("many", "10.96.5.1", *(port(f"p{n}", n + 1) for n in range(count))), [])
    await proxy.start({"default/many": many[:-1]})
    await proxy.apply({"default/many": many})
    assert made == [count < large_changes.LARGE] * 2
    assert not await proxy._compare(repair=False)


async def test_translation_is_in_force_before_the_refusal_goes() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({"default/web": web()})
    await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    text = writer.applied[-1]
    assert text.index("*nat") < text.index("*filter")
    assert "-D KUBE-SERVICES" in text[text.index("*filter") :]


async def test_a_restart_writes_nothing_where_nothing_differs() -> None:
    writer = RecordingWriter()
    state = {"default/web": web("web", "10.96.5.1", "10.244.1.2"), "default/none": web("none", "10.96.5.2")}
    await backend(writer).start(state)
    writer.applied.clear()
    await backend(writer).start(state)
    assert writer.applied == []


async def test_a_start_removes_stale_chains_and_leaves_other_peoples() -> None:
    writer = RecordingWriter()
    await backend(writer).start({"default/old": web("old", "10.96.9.9", "10.244.1.2")})
    writer.tables["nat"]["DOCKER"] = ["-j RETURN"]
    writer.tables["nat"]["PREROUTING"].append("-m addrtype --dst-type LOCAL -j DOCKER")
    await backend(writer).start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    rules = str(writer.tables)
    assert "default/old" not in rules
    assert "default/web" in rules
    assert writer.tables["nat"]["DOCKER"] == ["-j RETURN"]
    assert "-m addrtype --dst-type LOCAL -j DOCKER" in writer.tables["nat"]["PREROUTING"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda tables: tables["nat"]["KUBE-SERVICES"].clear(),
        lambda tables: tables["nat"]["OUTPUT"].clear(),
        lambda tables: tables["filter"].pop("KUBE-FIREWALL") and tables["filter"]["INPUT"].clear(),
        lambda tables: tables["filter"]["KUBE-FORWARD"].append("-j ACCEPT"),
        lambda tables: tables["nat"]["KUBE-SERVICES"].append("-d 1.2.3.4/32 -j RETURN"),
        lambda tables: [chains.clear() for chains in tables["nat"].values()],
    ],
)
async def test_damage_is_noticed_and_repaired(damage: object) -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy = backend(writer, clock)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    whole = await writer.read()
    assert not await proxy.verify()
    damage(writer.tables)  # type: ignore[operator]
    for jumps in ("INPUT", "OUTPUT"):
        writer.tables["filter"][jumps] = [
            rule for rule in writer.tables["filter"][jumps] if "KUBE-FIREWALL" not in rule
        ]
    writer.generation += 1
    await clock.advance(5)
    assert await proxy.verify()
    repaired = await writer.read()
    assert {t: {c: sorted(r) for c, r in cs.items()} for t, cs in repaired.items()} == {
        t: {c: sorted(r) for c, r in cs.items()} for t, cs in whole.items()
    }
    await clock.advance(5)
    assert not await proxy.verify()


async def test_jumps_that_are_put_back_follow_each_other_as_before() -> None:
    """Pods are let through only after every refusal was asked: the order of our jumps matters, wherever others' stand."""
    clock, writer = FakeClock(), RecordingWriter()
    proxy = backend(writer, clock)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    forward = writer.tables["filter"]["FORWARD"]
    before = list(forward)
    assert "WHERRY-POD-FORWARD" in before[-1]
    writer.tables["filter"]["FORWARD"] = ["-s 198.51.100.7/32 -j DROP", *before[:-1]]
    writer.generation += 1
    await clock.advance(5)
    assert await proxy.verify()
    assert writer.tables["filter"]["FORWARD"] == [*before, "-s 198.51.100.7/32 -j DROP"]
    assert not await proxy.verify()


async def test_looking_lists_no_rule_while_nobody_changed_any() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy = backend(writer, clock)
    await proxy.start({})
    writer.read = None  # type: ignore[assignment, method-assign]
    for _ in range(10):
        await clock.advance(5)
        assert not await proxy.verify()


async def test_a_refused_delta_is_followed_by_a_full_comparison() -> None:
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    writer.tables["nat"]["KUBE-SERVICES"].pop(0)  # somebody else deleted the entry that the delta is about to delete
    await proxy.apply({"default/web": (), "default/new": web("new", "10.96.5.9", "10.244.1.3")})
    assert "default/web" not in str(writer.tables)
    assert "default/new" in str(writer.tables)


async def test_a_write_that_cannot_be_made_is_made_up_for_at_the_next_look() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy = backend(writer, clock)
    await proxy.start({})
    good = writer.apply

    async def refuse(text: str) -> None:
        raise WriteError("no")

    writer.apply = refuse  # type: ignore[method-assign]
    with pytest.raises(WriteError):
        await proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    writer.apply = good  # type: ignore[method-assign]
    await clock.advance(5)
    await proxy.verify()
    assert "default/web" in str(writer.tables)


async def test_a_look_while_a_change_is_being_written_does_not_write_it_a_second_time() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy = backend(writer, clock)
    await proxy.start({})
    good, may_go_on, writing = writer.apply, asyncio.Event(), asyncio.Event()

    async def slowly(text: str) -> None:
        writing.set()
        await may_go_on.wait()
        await good(text)

    writer.apply = slowly  # type: ignore[method-assign]
    await clock.advance(5)
    async with asyncio.TaskGroup() as group:
        group.create_task(proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")}))
        await writing.wait()
        look = group.create_task(proxy.verify())
        await asyncio.sleep(0)
        may_go_on.set()
    assert not look.result()
    services = writer.tables["nat"]["KUBE-SERVICES"]
    assert len(services) == len(set(services))
    assert len([text for text in writer.applied if "10.96.5.1" in text]) == 1


async def test_a_change_that_waits_its_turn_while_others_rules_are_compared_is_no_difference() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    proxy = backend(writer, clock)
    await proxy.start({})
    good, may_go_on, reading = writer.read, asyncio.Event(), asyncio.Event()

    async def slowly() -> restore_text.Tables:
        held = await good()
        reading.set()
        await may_go_on.wait()
        return held

    writer.read = slowly  # type: ignore[method-assign]
    writer.generation += 1
    await clock.advance(5)
    async with asyncio.TaskGroup() as group:
        look = group.create_task(proxy.verify())
        await reading.wait()
        group.create_task(proxy.apply({"default/web": web("web", "10.96.5.1", "10.244.1.2")}))
        await asyncio.sleep(0)
        may_go_on.set()
    assert not look.result()
    assert len([text for text in writer.applied if "10.96.5.1" in text]) == 1


async def test_cleanup_removes_all_of_ours_and_nothing_else() -> None:
    writer = RecordingWriter()
    before = await writer.read()
    before["filter"]["INPUT"] = ["-s 198.51.100.7/32 -j DROP"]
    writer.tables["filter"]["INPUT"].append("-s 198.51.100.7/32 -j DROP")
    proxy = backend(writer)
    await proxy.start({"default/web": web("web", "10.96.5.1", "10.244.1.2"), "default/none": web("none", "10.96.5.2")})
    await proxy.cleanup()
    assert await writer.read() == before


@pytest.mark.parametrize("seed", range(5))
async def test_after_any_sequence_of_changes_deltas_equal_a_fresh_start(seed: int) -> None:
    churn = Churn(seed)
    writer = RecordingWriter()
    proxy = backend(writer)
    await proxy.start({})
    for _ in range(150):
        churn.step()
        await proxy.apply(await churn.table.take_changes())
    fresh = RecordingWriter()
    await backend(fresh).start(await churn.plan())
    assert {t: {c: sorted(r) for c, r in cs.items()} for t, cs in writer.tables.items()} == {
        t: {c: sorted(r) for c, r in cs.items()} for t, cs in fresh.tables.items()
    }


async def test_rules_become_lean_with_many_endpoints_where_a_change_copies_the_whole_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iptables_backend, "MANY_ENDPOINTS", 4)
    churn, writer, readable = Churn(7), RecordingWriter(), RecordingWriter()
    writer.copies_whole_table = True
    proxy, other = backend(writer), backend(readable)
    await proxy.start({})
    await other.start({})
    seen = set()
    for _ in range(150):
        churn.step()
        changes = await churn.table.take_changes()
        await proxy.apply(changes)
        await other.apply(changes)
        size = len(str(writer.tables))
        assert size <= len(str(readable.tables))
        lean = size < len(str(readable.tables))
        seen.add(lean)
        if not lean:
            assert {t: {c: sorted(r) for c, r in cs.items()} for t, cs in writer.tables.items()} == {
                t: {c: sorted(r) for c, r in cs.items()} for t, cs in readable.tables.items()
            }
    assert seen == {True, False}  # over the bound and back
    fresh = RecordingWriter()
    fresh.copies_whole_table = writer.copies_whole_table
    again = backend(fresh)
    await again.start(await churn.plan())
    assert {t: {c: sorted(r) for c, r in cs.items()} for t, cs in writer.tables.items()} == {
        t: {c: sorted(r) for c, r in cs.items()} for t, cs in fresh.tables.items()
    }


def test_saved_rules_are_read_back() -> None:
    saved = "# comment\n*nat\n:PREROUTING ACCEPT [3:4]\n:KUBE-X - [0:0]\n-A KUBE-X -s 1.2.3.4/32 -j RETURN\nCOMMIT\n"
    assert restore_text.parse_save(saved) == {"nat": {"PREROUTING": [], "KUBE-X": ["-s 1.2.3.4/32 -j RETURN"]}}


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
    other = IPTablesBackend(fresh, RuleSettings(local_cidrs=("10.244.0.0/16",)), settings)
    await other.start({"default/web": web("web", "10.96.5.1", "10.244.1.2")})
    assert writer.tables == fresh.tables
