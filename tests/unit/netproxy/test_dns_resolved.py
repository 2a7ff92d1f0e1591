"""Parsing of a resolver's response: the records of one name and of its aliases, as dnspython reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import dns.message
import dns.name
import dns.rdata
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netproxy.dns import resolver_answer, wire
from tests.support.cost import Case, judge_steps

LONG = ".".join(["a"] * 119) + ".attacker.test"
TYPES = {"A": 1, "NS": 2, "CNAME": 5, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33}
NAMES = ["example.org.", "a.example.org.", "b.example.org.", "other.test."]
VALUES = {
    "A": st.integers(0, 255).map(lambda n: f"192.0.2.{n}"),
    "AAAA": st.integers(0, 255).map(lambda n: f"2001:db8::{n:x}"),
    "TXT": st.sampled_from(['"x"', '"y" "z"']),
    "MX": st.sampled_from(NAMES).map(lambda name: f"10 {name}"),
    "SRV": st.sampled_from(NAMES).map(lambda name: f"1 2 3 {name}"),
    **{kind: st.sampled_from(NAMES) for kind in ("NS", "CNAME", "PTR")},
}


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a type, and an answer to a question of that type."""
    requested = draw(st.sampled_from(sorted(TYPES)))
    message = dns.message.make_response(dns.message.make_query("example.org", requested))
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from([requested, requested, "CNAME", "TXT"]))
        name, value = draw(st.sampled_from(NAMES)), draw(VALUES[kind])
        message.answer.append(dns.rrset.from_text(name, draw(st.integers(0, 300)), "IN", kind, value))
    return requested, message.to_wire()


@settings(deadline=None)
@given(answers())
def test_the_records_of_the_name_and_its_aliases_are_those_that_dnspython_reads(drawn: tuple[str, bytes]) -> None:
    requested, reply = drawn
    found = resolver_answer.records(reply, wire.encode_name("example.org"), TYPES[requested])
    read = dns.message.from_wire(reply, one_rr_per_rrset=True)
    known = [(_wire(r.name), int(r.rdtype), _wire(r[0]).lower()) for r in read.answer]
    assert {(r.owner, r.type, r.rdata.lower()) for r in found} <= {*known}
    asked_for = (wire.encode_name("example.org"), TYPES[requested])
    own = {rdata for owner, kind, rdata in known if (owner, kind) == asked_for}
    assert own == {r.rdata.lower() for r in found if (r.owner, r.type) == asked_for}


def _wire(part: dns.name.Name | dns.rdata.Rdata) -> bytes:
    encoded = part.to_wire()
    assert encoded is not None
    return encoded


@settings(deadline=None)
@given(answers(), st.integers(0, 200), st.binary(max_size=4))
def test_a_damaged_answer_is_malformed_or_read_and_nothing_else(drawn: tuple[str, bytes], at: int, put: bytes) -> None:
    requested, reply = drawn
    damaged = reply[:at] + put + reply[at + len(put) :]
    try:
        resolver_answer.records(damaged, wire.encode_name("example.org"), TYPES[requested])
    except wire.Malformed:
        return


def test_pointers_that_do_not_lead_back_are_malformed() -> None:
    header = struct.pack("!6H", 1, 0x8180, 0, 1, 0, 0)
    for pointer in (b"\xc0\x0c", b"\xc0\xff"):
        with pytest.raises(wire.Malformed):
            resolver_answer.records(header + pointer + bytes(10), b"\0", 1)


def reply(kind: int, number: int, rdata: Callable[[int], bytes]) -> bytes:
    """Return an answer with so many records of a name of 253 characters."""
    question = wire.encode_name(LONG) + struct.pack("!HH", kind, 1)
    records = (b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(rdata(n))) + rdata(n) for n in range(number))
    return struct.pack("!6H", 7, 0x8180, 1, number, 0, 0) + question + b"".join(records)


@pytest.mark.parametrize(
    ("kind", "rdata"),
    [
        (1, lambda n: n.to_bytes(4)),
        (15, lambda n: n.to_bytes(2) + b"\xc0\x0c"),
        (6, lambda n: b"\xc0\x0c\xc0\x0c" + n.to_bytes(4) + bytes(16)),
        (16, lambda n: b"\x01" + bytes([n % 256])),
    ],
    ids=["A", "MX", "SOA", "TXT"],
)
def test_the_cost_of_an_answer_grows_with_its_records_alone(kind: int, rdata: Callable[[int], bytes]) -> None:
    def build(size: int) -> bytes:
        return reply(kind, size // 32, rdata)

    owner = wire.encode_name(LONG)
    judge_steps(Case("records", build, lambda answer: resolver_answer.records(answer, owner, kind), largest=8192))


def test_the_cost_of_pointers_to_pointers_grows_with_the_answers_bytes_alone() -> None:
    def message(size: int) -> bytes:
        """Return records whose owner is the last of as many pointers, each to the one before it."""
        number = size // 14
        chain = b"".join((0xC000 | max(23, 22 + 2 * n)).to_bytes(2) for n in range(number))
        rdata = b"\0" + chain  # at 12 + 11 = 23, its pointers at 24 and every two bytes
        head = b"\0" + struct.pack("!HHIH", 10, 1, 0, len(rdata)) + rdata
        last = (0xC000 | 22 + 2 * number).to_bytes(2)
        records = b"".join(last + struct.pack("!HHIH", 1, 1, 0, 0) for _ in range(number))
        return struct.pack("!6H", 7, 0x8180, 0, 1 + number, 0, 0) + head + records

    assert resolver_answer.records(message(1000), b"\0", 1)
    judge_steps(Case("pointers", message, lambda answer: resolver_answer.records(answer, b"\0", 1), largest=8192))
