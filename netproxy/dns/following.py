"""Where an alias of the zone (ExternalName) leads outside: stub resolvers do not follow it themselves.

Only here are names in an answer decompressed; the library for it is loaded when that first happens.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from netproxy.dns import wire
from netproxy.dns.forward import Forwarder
from netproxy.dns.kept import Bounded
from netproxy.dns.wire import Record

if TYPE_CHECKING:
    import dns.message
    import dns.name

log = logging.getLogger(__name__)

LONGEST = 8192
"""Bytes of an answer that is read: it takes some 2.5 ms a kilobyte."""
RECORDS = 20
"""Bytes that what was read of an answer takes for each of its bytes."""
ALIASES = 8
"""Aliases that are followed one after the other."""


Found = tuple[tuple[Record, ...], bool]


class Follower:
    """Follows names with a forwarder."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._read: Bounded[bytes, Found] = Bounded(1000, 1 << 20)
        """What was read of an answer: while it is kept, it is another once a second, when its TTLs are lower."""

    async def follow(self, name: str, kind: int, *, tcp: bool) -> Found:
        """Return the records that resolvers have for a name, and whether there are more than fit over UDP.

        There are none where they do not answer with what can be read.
        """
        try:
            owner = wire.encode_name(name)
        except ValueError:
            return (), False
        question = owner + kind.to_bytes(2) + wire.IN.to_bytes(2)
        query = wire.Query(0, wire.RD, owner, kind, wire.IN, question, edns=True, udp_size=wire.OUR_UDP_SIZE)
        reply = await self._forwarder.ask(query, tcp=tcp)
        if len(reply) > LONGEST:
            log.info("%s is not followed: an answer of %d bytes", name, len(reply))
            return (), False
        found = self._read.get(reply)
        if found is None:
            found = _records(name, reply), bool(reply[2] << 8 & wire.TC)
            self._read.put(reply, found, RECORDS * len(reply))
        return found


def _records(name: str, reply: bytes) -> tuple[Record, ...]:
    import dns.exception
    import dns.message
    import dns.name

    try:
        return _chain(dns.message.from_wire(reply), dns.name.from_text(name))
    except (dns.exception.DNSException, ValueError) as error:
        log.info("cannot follow %s: %s", name, error)
        return ()


def _chain(found: dns.message.Message, name: dns.name.Name) -> tuple[Record, ...]:
    """Return the records of a name, through its aliases; others that an answer brings along are none of its business."""
    records: list[Record] = []
    names = [name]
    for name in names:  # grows with each alias
        sets = [rrset for rrset in found.answer if rrset.name == name]
        records += [
            Record(rdata.rdtype, rdata.to_wire() or b"", rrset.name.to_wire() or b"", rrset.ttl)
            for rrset in sets
            for rdata in rrset
        ]
        targets = [rrset[0].target for rrset in sets if rrset.rdtype == wire.CNAME]
        names += [target for target in targets if target not in names and len(names) < ALIASES]
    return tuple(records)
