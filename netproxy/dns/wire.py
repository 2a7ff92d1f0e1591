"""The DNS wire format, as much of it as the common case needs (RFC 1035, EDNS of RFC 6891). No I/O.

Records are kept as wire bytes, so an answer is a concatenation. The owner of nearly every record is the question's
name, written as a pointer to it. Whatever does not parse raises `Malformed`, never anything else.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import NamedTuple

A, NS, CNAME, SOA, PTR, TXT, AAAA, SRV, OPT, ANY = 1, 2, 5, 6, 12, 16, 28, 33, 41, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16
IN = 1
QR, AA, TC, RD, RA, AD, CD = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080, 0x0020, 0x0010
DO = 0x8000
LEAST_UDP_SIZE = 512
OUR_UDP_SIZE = 1232
"""The UDP size that we announce and never exceed: fits every path without fragments (DNS flag day 2020)."""
MAX_ADDITIONAL = 4
"""Additional records of a question in which EDNS is looked for: clients send one or two."""


class Malformed(Exception):
    """The packet is not a DNS message with one question."""


class Query(NamedTuple):
    """One question. `owner` is its name in wire format and lower case; `question` are the bytes of the question as sent."""

    id: int
    flags: int
    owner: bytes
    type: int
    klass: int
    question: bytes
    edns: bool = False
    edns_version: int = 0
    udp_size: int = 512
    dnssec: bool = False
    """The DO bit: the client takes records of DNSSEC."""

    @property
    def opcode(self) -> int:
        return (self.flags >> 11) & 0xF

    @property
    def name(self) -> str:
        """The name in lower case without the last dot."""
        labels, position = [], 0
        while length := self.owner[position]:
            label = self.owner[position + 1 : position + 1 + length]
            # A dot or a byte outside ASCII inside a label cannot be a cluster name; the escape keeps it distinct.
            labels.append(label.decode("latin-1").replace(".", "\\."))
            position += 1 + length
        return ".".join(labels)

    @property
    def limit(self) -> int:
        """The most bytes of an answer over UDP: one of two sizes, by what the client accepts."""
        return OUR_UDP_SIZE if self.udp_size >= OUR_UDP_SIZE else LEAST_UDP_SIZE


class Record(NamedTuple):
    """A resource record; `owner` None stands for the question's name."""

    type: int
    rdata: bytes
    owner: bytes | None = None
    ttl: int = 5

    @property
    def size(self) -> int:
        """Bytes that `encode` returns."""
        return (2 if self.owner is None else len(self.owner)) + 10 + len(self.rdata)

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
    position = 12
    try:
        while length := data[position]:
            if length > 63:
                raise Malformed("compressed or overlong label in a question")
            position += 1 + length
        position += 1
        kind, klass = struct.unpack_from("!HH", data, position)
    except (IndexError, struct.error) as error:
        raise Malformed("cut off") from error
    if position - 12 > 255:
        raise Malformed("name longer than 255 bytes")
    owner = data[12:position].lower()  # of ASCII letters alone; no length byte is one
    end = position + 4
    question = data[12:end]
    if additionals and not answers and not authorities:
        return Query(ident, flags, owner, kind, klass, question, *_find_opt(data, end, additionals))
    return Query(ident, flags, owner, kind, klass, question)


def _find_opt(data: bytes, position: int, count: int) -> tuple[bool, int, int, bool]:
    """Return of the OPT record (owner: the root) whether there is one, its version, the client's UDP size and the DO bit."""
    for _ in range(min(count, MAX_ADDITIONAL)):
        try:
            if data[position] != 0:
                break
            kind, size, ttl, length = struct.unpack_from("!HHIH", data, position + 1)
        except (IndexError, struct.error) as error:
            raise Malformed("cut off in an additional record") from error
        if position + 11 + length > len(data):
            raise Malformed("cut off in an additional record")
        if kind == OPT:
            return True, (ttl >> 16) & 0xFF, max(LEAST_UDP_SIZE, size), bool(ttl & DO)
        position += 11 + length
    return False, 0, LEAST_UDP_SIZE, False


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
    try:  # a fifth of the time that the module ipaddress takes
        return (
            (AAAA, socket.inet_pton(socket.AF_INET6, text))
            if ":" in text
            else (A, socket.inet_pton(socket.AF_INET, text))
        )
    except OSError:
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


def address(text: str) -> str | None:
    """Return an address in its usual form, or None; one with a zone (fe80::1%eth0) is none in DNS."""
    try:
        return None if "%" in text else str(ipaddress.ip_address(text))
    except ValueError:
        return None


def reverse_address(name: str) -> str | None:
    """Return the address that an in-addr.arpa or ip6.arpa name stands for, or None."""
    if name.endswith(".in-addr.arpa"):
        text = ".".join(reversed(name.removesuffix(".in-addr.arpa").split(".")))
        return None if ":" in text else address(text)
    if name.endswith(".ip6.arpa"):
        digits = name.removesuffix(".ip6.arpa").split(".")
        if len(digits) != 32 or any(len(digit) != 1 for digit in digits):
            return None
        joined = "".join(reversed(digits))
        return address(":".join(joined[index : index + 4] for index in range(0, 32, 4)))
    return None
