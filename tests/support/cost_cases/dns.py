"""DNS: queries of clients and responses of servers."""

from __future__ import annotations

from collections.abc import Callable

from netproxy.dns import forwarder, reply
from netproxy.dns import wire as dns_wire
from tests.support.cost_cases.inputs import HEAD, cases

DNS: dict[str, Callable[[int], bytes]] = {
    "labels": lambda size: _query(b"\x01a" * (size // 2)),
    "long labels": lambda size: _query((b"\x3f" + b"a" * 63) * (size // 64)),
    "dots in a label": lambda size: _query(b"\x3f" + b"." * 63),
    "additional records": lambda size: _query(b"\x01a") + (b"\0\0\x01\0\x01\0\0\0\0\0\0") * (size // 11),
    "a pointer": lambda size: _query(b"\xc0\x0c" * (size // 2)),
}
ANSWERS: dict[str, Callable[[int], bytes]] = {
    "records": lambda size: (
        b"\0\0\x80\0\0\0\xff\xff\0\0\0\0" + b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04abcd" * (size // 16)
    ),
    "labels": lambda size: b"\0\0\x80\0\xff\xff\xff\xff\0\0\0\0" + b"\x01a" * (size // 2),
    "pointers": lambda size: b"\0\0\x80\0\xff\xff\xff\xff\0\0\0\0" + b"\xc0\x0c" * (size // 2),
}


def _query(name: bytes) -> bytes:
    return b"\0\x01\0\0\0\x01\0\0\0\0\xff\xff" + name + b"\0\0\x01\0\x01"


def dns_query(data: bytes) -> object:
    query = dns_wire.parse_query(data)
    return dns_wire.reverse_address(query.name), reply.without_records(query, 0)


def dns_answer(data: bytes) -> object:
    return forwarder.lowest_ttl(data), forwarder.age(data, 1)


CASES = [
    *cases("DNS query", DNS, dns_query, largest=HEAD, refused=(dns_wire.Malformed,)),
    *cases("DNS answer", ANSWERS, dns_answer, largest=HEAD),
]
