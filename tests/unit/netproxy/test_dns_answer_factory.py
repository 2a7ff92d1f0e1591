"""Kept DNS answers: found by what decides them, given to each client in its own words, bounded."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netproxy.dns import alias_resolver, forwarder, wire
from netproxy.dns.answer_cache import OVERHEAD, BoundedCache
from netproxy.dns.answer_factory import Answer
from netproxy.dns.forwarder import Forwarder
from netproxy.dns.responder import Responder
from netproxy.dns.zone import Zone
from tests.support.clock import FakeClock
from tests.support.services import service, slice_of
from tests.unit.netproxy.test_dns import CLUSTER, DOMAIN, Directory, responder, texts
from tests.unit.netproxy.test_dns_forwarder import upstream_answer

HEADLESS = Directory(
    *CLUSTER.services.values(),
    *CLUSTER.all_slices,
    service("crowd", "None", ips=["None"]),
    slice_of("crowd", *(f"10.244.3.{number}" for number in range(1, 200))),
)
QUESTIONS = [
    ("web.default.svc.cluster.local", "A"),
    ("web.default.svc.cluster.local", "AAAA"),
    ("crowd.default.svc.cluster.local", "A"),
    ("crowd.default.svc.cluster.local", "SRV"),
    ("_sql._tcp.db.default.svc.cluster.local", "SRV"),
    ("10-1-2-3.default.pod.cluster.local", "A"),
    ("alias.default.svc.cluster.local", "A"),
    ("nothing.default.svc.cluster.local", "A"),
    ("1.5.96.10.in-addr.arpa", "PTR"),
]


class CountingZone(Zone):
    """Counts the answers that are computed."""

    def __init__(self, directory: Directory) -> None:
        super().__init__(directory, DOMAIN, addresses=["10.96.0.10"], ranges=["10.96.0.0/12"])
        self.received: Counter[str] = Counter()

    def answer(self, name: str, kind: int, *room: int) -> Answer | None:
        self.received[name] += 1
        return super().answer(name, kind, *room)


def spelled(name: str, mask: int) -> str:
    return "".join(c.upper() if mask >> i & 1 else c for i, c in enumerate(name))


@st.composite
def queries(draw: st.DrawFn) -> tuple[tuple[str, str], int, dns.message.Message]:
    """A question, the size that the client takes, and one of the many messages that ask it."""
    requested = draw(st.sampled_from(QUESTIONS))
    edns = draw(st.booleans())
    size = draw(st.integers(0, 65535)) if edns else 512
    options = [dns.edns.GenericOption(12, draw(st.binary(max_size=40)))] if draw(st.booleans()) else []
    message = dns.message.make_query(
        spelled(requested[0], draw(st.integers(0, 1 << 60))),
        requested[1],
        use_edns=0 if edns else None,
        payload=size,
        want_dnssec=edns and draw(st.booleans()),
        options=options if edns else None,
        id=draw(st.integers(0, 65535)),
    )
    for flag in (dns.flags.RD, dns.flags.CD, dns.flags.AD):
        message.flags ^= draw(st.sampled_from((0, flag)))
    return requested, max(512, size), message


ZONE = CountingZone(HEADLESS)
SERVER = Responder(ZONE, Forwarder(list))


@settings(max_examples=400, deadline=None)
@given(queries())
def test_any_message_gets_its_own_question_back_and_what_fits(given: tuple[tuple[str, str], int, object]) -> None:
    requested, size, query = given
    sent = query.to_wire()  # type: ignore[attr-defined]
    answer = SERVER.quick(sent)
    assert answer is not None
    assert len(answer) <= size
    length = len(sent[12 : sent.index(b"\0", 12) + 5])
    assert (answer[:2], answer[12 : 12 + length]) == (sent[:2], sent[12 : 12 + length])
    message = dns.message.from_wire(answer)
    assert query.is_response(message)  # type: ignore[attr-defined]
    same = dns.flags.RD | dns.flags.CD
    assert message.flags & same == query.flags & same  # type: ignore[attr-defined]
    assert message.ednsflags & dns.flags.DO == query.ednsflags & dns.flags.DO  # type: ignore[attr-defined]
    plain = dns.message.from_wire(responder(HEADLESS).quick(dns.message.make_query(*requested).to_wire()) or b"")
    if message.flags & dns.flags.TC or plain.flags & dns.flags.TC:
        assert requested[0].startswith("crowd")
    else:
        assert (texts(message), message.rcode()) == (texts(plain), plain.rcode())
    # Without EDNS, with 512 bytes of it, and with our size.
    assert max(ZONE.received.values()) <= 3 * 2


def test_the_spelling_of_a_type_is_part_of_it() -> None:
    """A type whose byte is a letter (65, HTTPS) is another than the one with the small letter (97)."""
    for server, kinds in ((SERVER, (65, 97)), (SERVER, (0x4100, 0x6100))):
        for kind in kinds:
            query = dns.message.make_query("web.default.svc.cluster.local", kind)
            message = dns.message.from_wire(server.quick(query.to_wire()) or b"")
            assert message.question[0].rdtype == kind


def test_unknown_types_share_an_answer() -> None:
    zone = CountingZone(HEADLESS)
    server = Responder(zone, Forwarder(list))
    for kind in range(256, 1256):
        query = dns.message.make_query("crowd.default.svc.cluster.local", kind)
        message = dns.message.from_wire(server.quick(query.to_wire()) or b"")
        assert message.question[0].rdtype == kind and not message.answer and message.authority
    assert zone.received.total() == 1


async def test_an_answer_made_for_tcp_is_not_given_over_udp() -> None:
    zone = CountingZone(HEADLESS)
    server = Responder(zone, Forwarder(list))
    query = dns.message.make_query("crowd.default.svc.cluster.local", "A")
    for _ in range(3):
        whole = await server.slow(query.to_wire(), tcp=True)
        assert len(texts(dns.message.from_wire(whole))) == 199
        part = server.quick(query.to_wire()) or b""
        assert len(part) <= 512 and dns.message.from_wire(part).flags & dns.flags.TC
        assert len(await server.slow(query.to_wire())) <= 512
    assert zone.received.total() == 2


def test_every_address_comes_first_in_turn() -> None:
    server = responder(CLUSTER)
    query = dns.message.make_query("db.default.svc.cluster.local", "A")
    firsts = [dns.message.from_wire(server.quick(query.to_wire()) or b"").answer[0][0].to_text() for _ in range(30)]
    assert set(Counter(firsts).values()) == {10}


def test_queries_of_one_client_do_not_evict_answers_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netproxy.dns.responder.MAX_CACHED", 20)
    zone = CountingZone(HEADLESS)
    server = Responder(zone, Forwarder(list))
    used = dns.message.make_query("web.default.svc.cluster.local", "A").to_wire()
    for number in range(1, 200):
        server.quick(dns.message.make_query(f"10-244-3-{number}.crowd.default.svc.cluster.local", "A").to_wire())
        server.quick(dns.message.make_query(f"10-9-9-{number}.default.pod.cluster.local", "A").to_wire())
        server.quick(used)
    assert zone.received["web.default.svc.cluster.local"] == 1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=60),
    st.integers(1, 8),
    st.integers(0, 10),
)
def test_what_is_kept_is_bounded_by_entries_and_bytes(
    puts: list[tuple[int, int]], entries: int, overheads: int
) -> None:
    kept: BoundedCache[int, int] = BoundedCache(entries, overheads * OVERHEAD)
    for key, size in puts:
        kept.put(key, size, size * OVERHEAD)
        held = {key: kept.get(key) for key in range(13) if kept.get(key) is not None}
        assert len(held) == len(kept) <= entries
        assert sum((size + 1) * OVERHEAD for size in held.values() if size is not None) == kept.size
        assert kept.size <= overheads * OVERHEAD
        assert (key in held) == ((size + 1) <= overheads), "the latest is kept unless it is too large"


def test_answers_of_a_service_are_forgotten_together() -> None:
    server = responder(HEADLESS)
    for requested in QUESTIONS:
        server.quick(dns.message.make_query(*requested).to_wire())
    assert len(server._services) and len(server._others)
    for key in HEADLESS.services:
        server.forget(key)
    server.forget("default/nothing")
    for each in (server._services, server._others):
        assert (len(each), each.size, dict(each._about)) == (0, 0, {})


@pytest.mark.parametrize(
    "name",
    ["fe80--1%eth0.default.pod.cluster.local", "1-2-3-4%1.default.pod.cluster.local"],
)
def test_an_address_with_a_zone_is_no_name_of_a_pod(name: str) -> None:
    for kind in (wire.A, wire.AAAA):
        answer = Zone(CLUSTER, DOMAIN).answer(name, kind)
        assert answer is not None and answer.rcode == wire.NXDOMAIN


@pytest.mark.parametrize("name", ["fd00:96::2.in-addr.arpa", "%0.1.5.96.10.in-addr.arpa"])
def test_a_reverse_name_of_another_form_is_nobodys(name: str) -> None:
    assert wire.reverse_address(name) is None


# -- names outside ------------------------------------------------------------------------------------------------------
class Resolver:
    """Answers what it is asked with so many addresses; where `gate` is given, not before that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, addresses: int = 1, gate: asyncio.Event | None = None) -> None:
        self.messages: list[bytes] = []

        async def exchange(host: str, port: int, message: bytes, question: bytes) -> bytes:
            self.messages.append(message)
            if gate is not None:
                await gate.wait()
            answer = dns.message.make_response(dns.message.from_wire(message))
            name = answer.question[0].name
            found = [f"192.0.2.{number}" for number in range(1, addresses + 1)]
            answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", "A", found))
            return answer.to_wire(max_size=65535)

        monkeypatch.setattr(forwarder, "_over_udp", exchange)
        monkeypatch.setattr(forwarder, "_over_tcp", exchange)


def outside() -> Responder:
    return responder(forwarder=Forwarder(lambda: ["192.0.2.53"], clock=FakeClock()))


def requesting(number: int, **options: object) -> bytes:
    padding = dns.edns.GenericOption(12, bytes(number % 50))
    cookie = dns.edns.GenericOption(10, struct.pack("!Q", number))
    return dns.message.make_query(
        spelled("www.example.org", number),
        "A",
        use_edns=0,
        payload=1232 + number,
        options=[padding, cookie],
        **options,  # type: ignore[arg-type]
    ).to_wire()


async def test_no_spelling_of_an_external_name_is_queried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver, server = Resolver(monkeypatch), outside()
    for number in range(300):
        sent = requesting(number)
        answer = await server.slow(sent)
        assert answer[:2] == sent[:2] and answer[12:33] == sent[12:33]
        assert texts(dns.message.from_wire(answer)) == ["192.0.2.1"]
    assert len(resolver.messages) == 1
    passed_on = dns.message.from_wire(resolver.messages[0])
    assert not passed_on.options and passed_on.payload == wire.OUR_UDP_SIZE


async def test_flags_and_dnssec_are_passed_on_and_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver, server = Resolver(monkeypatch), outside()
    for flags in (0, dns.flags.RD, dns.flags.RD | dns.flags.CD, dns.flags.RD | dns.flags.AD):
        for dnssec in (False, True):
            query = dns.message.make_query("example.org", "A", use_edns=0, want_dnssec=dnssec)
            query.flags = dns.flags.Flag(flags)
            await server.slow(query.to_wire())
            sent = dns.message.from_wire(resolver.messages[-1])
            assert (sent.flags, bool(sent.ednsflags & dns.flags.DO)) == (flags, dnssec)
    assert len(resolver.messages) == 8


async def test_no_answer_from_outside_is_longer_than_the_client_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that a resolver sends, nor one that was kept for a client that asked over TCP."""
    Resolver(monkeypatch, addresses=100)
    for first in (True, False):
        server = outside()
        for tcp in (first, not first):
            for size in (None, 512, 600, 1232, 4096):
                edns = {} if size is None else {"use_edns": 0, "payload": size}
                query = dns.message.make_query("example.org", "A", **edns)  # type: ignore[arg-type]
                answer = await server.slow(query.to_wire(), tcp=tcp)
                message = dns.message.from_wire(answer)
                assert query.is_response(message)
                if tcp:
                    assert len(texts(message)) == 100
                else:
                    assert len(answer) <= max(512, size or 0) and message.flags & dns.flags.TC


async def test_a_pending_query_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forger that can have a name asked for many times at once has as many numbers to guess one of."""
    gate = asyncio.Event()
    resolver, server = Resolver(monkeypatch, gate=gate), outside()
    sent = [requesting(number) for number in range(50)]
    tasks = [asyncio.create_task(server.slow(each)) for each in sent]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    assert len(resolver.messages) == 1
    gate.set()
    answers = await asyncio.gather(*tasks[1:])
    assert [each[:2] for each in answers] == [each[:2] for each in sent[1:]]
    assert len(resolver.messages) == 1
    assert not server._forwarder._in_flight


def test_an_answer_to_another_type_does_not_count() -> None:
    query = dns.message.make_query("example.org", 65).to_wire()
    other = query[:2] + upstream_answer(dns.message.make_query("example.org", 97).to_wire())[2:]
    assert not forwarder._answers(other, query, wire.parse_query(query).question)
    twice = bytearray(upstream_answer(query))
    twice[5] = 2
    assert not forwarder._answers(bytes(twice), query, wire.parse_query(query).question)


# -- aliases that lead outside ------------------------------------------------------------------------------------------
async def followed(
    monkeypatch: pytest.MonkeyPatch, *records: str, flags: int = 0, tcp: bool = False
) -> dns.message.Message:
    async def exchange(host: str, port: int, message: bytes, question: bytes) -> bytes:
        answer = dns.message.make_response(dns.message.from_wire(message))
        answer.flags |= flags
        for record in records:
            name, kind, value = record.split()
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", kind, value))
        return answer.to_wire(max_size=65535)

    monkeypatch.setattr(forwarder, "_over_udp", exchange)
    monkeypatch.setattr(forwarder, "_over_tcp", exchange)
    query = dns.message.make_query("outside.default.svc.cluster.local", "A")
    return dns.message.from_wire(await outside().slow(query.to_wire(), tcp=tcp))


async def test_of_what_a_resolver_sends_only_the_aliases_way_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    message = await followed(
        monkeypatch,
        "web.default.svc.cluster.local. A 203.0.113.66",
        "www.example.org. A 192.0.2.7",
        "example.org. CNAME www.example.org.",
        "bank.example. A 203.0.113.66",
    )
    assert texts(message) == ["192.0.2.7", "example.org.", "www.example.org."]


async def test_aliases_that_lead_in_a_circle_end(monkeypatch: pytest.MonkeyPatch) -> None:
    message = await followed(monkeypatch, "example.org. CNAME a.example.", "a.example. CNAME example.org.")
    assert texts(message) == ["a.example.", "example.org.", "example.org."]  # one of them the zone's own


async def test_what_a_resolver_cut_is_passed_on_as_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    message = await followed(monkeypatch, "example.org. A 192.0.2.1", flags=dns.flags.TC)
    assert message.flags & dns.flags.TC


async def test_an_answer_that_would_take_long_to_read_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"example.org. A 192.{a}.{b}.1" for a in range(4) for b in range(250)]
    message = await followed(monkeypatch, *many, tcp=True)
    assert texts(message) == ["example.org."]


async def test_the_same_answer_behind_an_alias_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch)
    server, read = outside(), Counter[bytes]()
    original = alias_resolver._records

    def counting(owner: bytes, kind: int, reply: bytes) -> tuple[wire.Record, ...]:
        read[reply] += 1
        return original(owner, kind, reply)

    monkeypatch.setattr(alias_resolver, "_records", counting)
    for number in range(20):
        name = spelled("outside.default.svc.cluster.local", number)
        answer = dns.message.from_wire(await server.slow(dns.message.make_query(name, "A").to_wire()))
        assert texts(answer) == ["192.0.2.1", "example.org."]
    assert read.total() == 1
