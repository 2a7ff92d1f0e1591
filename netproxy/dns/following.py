"""Where an alias of the zone (ExternalName) leads outside: stub resolvers do not follow it themselves.

Only here are names in an answer decompressed; the library for it is loaded when that first happens.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from netproxy.dns import wire
from netproxy.dns.forward import Forwarder
from netproxy.dns.wire import Record

if TYPE_CHECKING:
    import dns.message

log = logging.getLogger(__name__)


async def follow(forwarder: Forwarder, name: str, kind: int, *, tcp: bool) -> tuple[tuple[Record, ...], bool]:
    """Return the records that resolvers have for a name, and whether there are more than fit over UDP.

    There are none where they do not answer with what can be read.
    """
    import dns.exception
    import dns.message

    try:
        owner = wire.encode_name(name)
        question = owner + kind.to_bytes(2) + wire.IN.to_bytes(2)
        query = wire.Query(0, wire.RD, owner, kind, wire.IN, question, edns=True, udp_size=wire.OUR_UDP_SIZE)
        reply = await forwarder.ask(query, tcp=tcp)
        found = dns.message.from_wire(reply)
        return _records(found), bool(reply[2] << 8 & wire.TC)
    except (dns.exception.DNSException, ValueError) as error:
        log.info("cannot follow %s: %s", name, error)
        return (), False


def _records(found: dns.message.Message) -> tuple[Record, ...]:
    return tuple(
        Record(rdata.rdtype, rdata.to_wire() or b"", rrset.name.to_wire() or b"", rrset.ttl)
        for rrset in found.answer
        for rdata in rrset
    )
