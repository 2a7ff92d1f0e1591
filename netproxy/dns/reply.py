"""Encodes answers: the records once, behind each question that requests them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from netproxy.dns.wire import AA, AAAA, CD, DO, OPT, OUR_UDP_SIZE, QR, RA, RD, TC, A, Query, Record


class Body(NamedTuple):
    """The part of an answer after the question, and the flags and counts before it. The same for every spelling of a name."""

    rcode: int
    flags: int
    counts: tuple[int, int, int]
    answers: bytes
    others: bytes = b""
    stride: int = 0
    """Bytes of each answer where these are addresses of the question's name, which may stand in any order; else 0."""


def room(query: Query, limit: int) -> int:
    """Return how many bytes there are for records in an answer of `limit` bytes."""
    return limit - 12 - len(query.question) - (11 if query.edns else 0)


def body(
    rcode: int,
    answers: Sequence[Record] = (),
    authority: Sequence[Record] = (),
    additional: Sequence[Record] = (),
    *,
    room: int,
    authoritative: bool = True,
) -> Body:
    """Encode the records of an answer, at most `room` bytes; where the answers do not fit, as many as do and the TC flag."""
    flags = QR | RA | (AA if authoritative else 0) | (rcode & 0xF)
    sections: list[list[bytes]] = [[], [], []]
    for number, records in enumerate((answers, authority, additional)):
        for record in records:
            encoded = record.encode()
            if len(encoded) > room:
                if number < 2:
                    flags |= TC
                break
            room -= len(encoded)
            sections[number].append(encoded)
        if flags & TC:
            break
    first, second, third = sections
    alike = len({(record.type, record.owner) for record in answers}) == 1
    stride = len(first[0]) if alike and len(first) > 1 and answers[0].type in (A, AAAA) else 0
    return Body(rcode, flags, (len(first), len(second), len(third)), b"".join(first), b"".join(second + third), stride)


def message(query: Query, body: Body, rotation: int = 0) -> bytes:
    """Return an answer under the query's ID with its own question; addresses are rotated by so many."""
    answers = body.answers
    if rotation and body.stride:
        cut = rotation * body.stride % len(answers)
        answers = answers[cut:] + answers[:cut]
    flags = body.flags | (query.flags & (0x7800 | RD | CD))
    counts = body.counts
    header = struct.pack("!6H", query.id, flags, 1, counts[0], counts[1], counts[2] + query.edns)
    opt = opt_record(OUR_UDP_SIZE, dnssec=query.dnssec, rcode=body.rcode >> 4) if query.edns else b""
    return b"".join((header, query.question, answers, body.others, opt))


def opt_record(size: int, *, dnssec: bool, rcode: int = 0) -> bytes:
    """Return an OPT record; `rcode` are the upper bits of a long one."""
    return b"\x00" + struct.pack("!HHIH", OPT, size, rcode << 24 | (DO if dnssec else 0), 0)


def without_records(query: Query, rcode: int, flags: int = 0) -> bytes:
    """Return an answer without records that is not from the zone, with more flags."""
    return message(query, Body(rcode, QR | RA | flags | (rcode & 0xF), (0, 0, 0), b""))


def error(data: bytes, rcode: int) -> bytes:
    """Return an error answer to a message that could not be parsed; b"" if it has no ID or is an answer."""
    if len(data) < 12 or data[2] & 0x80:
        return b""
    (flags,) = struct.unpack_from("!H", data, 2)
    return data[:2] + struct.pack("!5H", QR | (flags & (0x7800 | RD)) | rcode, 0, 0, 0, 0)
