"""Builds the zone's answers: as many records as fit, or the SOA where there are none. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from netproxy.dns import wire
from netproxy.dns.wire import Record

ROOM = 65535
"""Bytes of the longest answer, over TCP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`about` is the key of the Service that the answer depends on, "*" where it is any. `follow` is a name outside
    the zone that a CNAME leads to. `cut` means that the search was incomplete: there may be more records."""

    rcode: int
    answers: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    about: str = "*"
    follow: str = ""
    cut: bool = False


class AnswerFactory:
    """Makes the answers of a zone, with its TTL in seconds."""

    def __init__(self, domain: str, ttl: int) -> None:
        self.domain, self.ttl = domain, ttl
        self._owner = wire.encode_name(domain)

    def record(self, kind: int, rdata: bytes, owner: bytes | None = None) -> Record:
        """Return a record of the queried name, or of another one."""
        return Record(kind, rdata, owner, self.ttl)

    def soa(self) -> Record:
        rdata = wire.soa_rdata(f"ns.dns.{self.domain}", f"hostmaster.{self.domain}", 1, 7200, 1800, 86400, self.ttl)
        return Record(wire.SOA, rdata, self._owner, self.ttl)

    def nxdomain(self, about: str = "*") -> Answer:
        """Return NXDOMAIN."""
        return Answer(wire.NXDOMAIN, authority=(self.soa(),), about=about)

    def of(
        self,
        records: Iterable[Record],
        kind: int,
        about: str = "*",
        additional: Iterable[Record] = (),
        room: int = ROOM,
    ) -> Answer:
        """Return the records of the queried type; without any, NOERROR and the SOA, because the name exists."""
        chosen, left = fill(room, (record for record in records if kind in (record.type, wire.ANY)))
        if not chosen:
            return Answer(wire.NOERROR, authority=(self.soa(),), about=about)
        return Answer(wire.NOERROR, chosen, additional=fill(left, additional)[0], about=about)

    def address(self, ip: str, owner: bytes | None = None) -> Record:
        kind, rdata = wire.address_rdata(ip)
        return Record(kind, rdata, owner, self.ttl)


def fill(room: int, records: Iterable[Record]) -> tuple[tuple[Record, ...], int]:
    """Return the records that fit in so many bytes and, where some do not, one more; and the bytes that are left."""
    made = []
    for record in records:
        made.append(record)
        room -= record.size
        if room < 0:
            break
    return tuple(made), room
