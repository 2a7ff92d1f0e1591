"""The DNS wire format, as much of it as the common case needs (RFC 1035, EDNS of RFC 6891). No I/O.

Records are kept as wire bytes, so an answer is a concatenation. The owner of nearly every record is the question's
name, written as a pointer to it. Whatever does not parse raises `Malformed`, never anything else.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass

A, NS, CNAME, SOA, PTR, TXT, AAAA, SRV, OPT, ANY = 1, 2, 5, 6, 12, 16, 28, 33, 41, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16
IN = 1
QR, AA, TC, RD, RA, CD = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080, 0x0010
OUR_UDP_SIZE = 1232
"""What we announce and never exceed over UDP: fits every path without fragments (DNS flag day 2020)."""


class Malformed(Exception):
    """The packet is not a DNS message that can be answered; `reply_to` is its ID where it has one."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question. `name` is in lower case without the last dot; `question` are its bytes as sent."""

    id: int
    flags: int
    name: str
    type: int
    klass: int
    question: bytes
    edns: bool = False
    edns_version: int = 0
    udp_size: int = 512

    @property
    def opcode(self) -> int:
        return (self.flags >> 11) & 0xF


@dataclass(frozen=True, slots=True)
class Record:
    """A resource record; `owner` None stands for the question's name."""

    type: int
    rdata: bytes
    owner: bytes | None = None
    ttl: int = 5

    def encode(self) -> bytes:
        owner = b"\xc0\x0c" if self.owner is None else self.owner
        return owner + struct.pack("!HHIH", self.type, IN, self.ttl, len(self.rdata)) + self.rdata


def parse_query(data: bytes) -> Query:
    """Read a message with one question; Malformed where it is none, or is itself an answer."""
    if len(data) < 12:
        raise Malformed("shorter than a header")
    ident, flags, questions, answers, authorities, additionals = struct.unpack_from("!6H", data)
    if flags & QR:
        raise Malformed("an answer, not a query")
    if questions != 1:
        raise Malformed(f"{questions} questions")
    labels, position = [], 12
    try:
        while length := data[position]:
            if length > 63:
                raise Malformed("compressed or overlong label in a question")
            labels.append(data[position + 1 : position + 1 + length])
            position += 1 + length
        position += 1
        if position - 12 > 255:
            raise Malformed("name longer than 255 bytes")
        kind, klass = struct.unpack_from("!HH", data, position)
    except (IndexError, struct.error) as error:
        raise Malformed("cut off") from error
    # A dot or a byte outside ASCII inside a label cannot be a cluster name; the escape keeps it distinct.
    name = ".".join(label.decode("latin-1").replace(".", "\\.") for label in labels).lower()
    end = position + 4
    edns, version, size = False, 0, 512
    if additionals and not answers and not authorities:
        edns, version, size = _find_opt(data, end, additionals)
    return Query(ident, flags, name, kind, klass, data[12:end], edns, version, size)


def _find_opt(data: bytes, position: int, count: int) -> tuple[bool, int, int]:
    """Look for the OPT record (owner: the root) among the additional records."""
    for _ in range(count):
        try:
            if data[position] != 0:
                return False, 0, 512
            kind, size, ttl, length = struct.unpack_from("!HHIH", data, position + 1)
        except (IndexError, struct.error) as error:
            raise Malformed("cut off in an additional record") from error
        if position + 11 + length > len(data):
            raise Malformed("cut off in an additional record")
        if kind == OPT:
            return True, (ttl >> 16) & 0xFF, max(512, size)
        position += 11 + length
    return False, 0, 512


def reply(
    query: Query,
    rcode: int,
    answers: Sequence[Record] = (),
    authority: Sequence[Record] = (),
    additional: Sequence[Record] = (),
    *,
    limit: int,
    authoritative: bool = True,
) -> bytes:
    """Build the answer, at most `limit` bytes; where the answers do not fit, as many as do and the TC flag."""
    opt = b""
    if query.edns:
        opt = b"\x00" + struct.pack("!HHBBHH", OPT, OUR_UDP_SIZE, rcode >> 4, 0, 0, 0)
    room = limit - 12 - len(query.question) - len(opt)
    flags = QR | (query.flags & (0x7800 | RD | CD)) | RA | (AA if authoritative else 0) | (rcode & 0xF)
    body: list[bytes] = []
    counts = [0, 0, 0]
    for section, records in enumerate((answers, authority, additional)):
        for record in records:
            encoded = record.encode()
            if len(encoded) > room:
                if section < 2:
                    flags |= TC
                break
            room -= len(encoded)
            body.append(encoded)
            counts[section] += 1
        if flags & TC:
            break
    header = struct.pack("!6H", query.id, flags, 1, counts[0], counts[1], counts[2] + bool(opt))
    return header + query.question + b"".join(body) + opt


def error_reply(data: bytes, rcode: int) -> bytes:
    """Answer what could not be parsed with its ID and a code alone; b"" where not even that can be told."""
    if len(data) < 12 or data[2] & 0x80:
        return b""
    (flags,) = struct.unpack_from("!H", data, 2)
    return data[:2] + struct.pack("!5H", QR | (flags & (0x7800 | RD)) | rcode, 0, 0, 0, 0)


def encode_name(name: str) -> bytes:
    """Encode a name; ValueError for one that no DNS message can carry."""
    out = bytearray()
    for label in name.rstrip(".").split("."):
        raw = label.encode("ascii")
        if not 0 < len(raw) <= 63:
            raise ValueError(f"label of {len(raw)} bytes in {name!r}")
        out.append(len(raw))
        out += raw
    if len(out) > 254:
        raise ValueError(f"name too long: {name!r}")
    return bytes(out) + b"\x00"


def address_rdata(text: str) -> tuple[int, bytes]:
    """Return the record type (A or AAAA) and rdata of an address."""
    address = ipaddress.ip_address(text)
    return (A if address.version == 4 else AAAA), address.packed


def srv_rdata(priority: int, weight: int, port: int, target: str) -> bytes:
    return struct.pack("!HHH", priority, weight, port) + encode_name(target)


def soa_rdata(mname: str, rname: str, serial: int, refresh: int, retry: int, expire: int, minimum: int) -> bytes:
    """All times in seconds."""
    return encode_name(mname) + encode_name(rname) + struct.pack("!5I", serial, refresh, retry, expire, minimum)


def txt_rdata(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


def reverse_address(name: str) -> str | None:
    """Return the address that an in-addr.arpa or ip6.arpa name stands for, or None."""
    if name.endswith(".in-addr.arpa"):
        text = ".".join(reversed(name.removesuffix(".in-addr.arpa").split(".")))
    elif name.endswith(".ip6.arpa"):
        digits = name.removesuffix(".ip6.arpa").split(".")
        if len(digits) != 32 or any(len(digit) != 1 for digit in digits):
            return None
        joined = "".join(reversed(digits))
        text = ":".join(joined[index : index + 4] for index in range(0, 32, 4))
    else:
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
