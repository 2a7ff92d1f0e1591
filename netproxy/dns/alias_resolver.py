"""Resolves the targets of ExternalName Services outside the zone, for stub resolvers do not follow a CNAME themselves."""

from __future__ import annotations

import logging

from netproxy.dns import resolver_answer, wire
from netproxy.dns.answer_cache import BoundedCache
from netproxy.dns.forwarder import Forwarder
from netproxy.dns.wire import Record

log = logging.getLogger(__name__)

LONGEST = 8192
"""Bytes of an answer that is read."""
RECORDS = 20
"""Bytes that what was read of an answer takes for each of its bytes."""

Found = tuple[tuple[Record, ...], bool]


class AliasResolver:
    """Follows names with a forwarder."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._read: BoundedCache[bytes, Found] = BoundedCache(1000, 1 << 20)
        """Parsed records by answer: a cached answer changes once a second, when its TTLs are lower."""

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
            log.info("alias %s is not resolved: the response has %d bytes", name, len(reply))
            return (), False
        found = self._read.get(reply)
        if found is None:
            found = _records(owner, kind, reply), bool(reply[2] << 8 & wire.TC)
            self._read.put(reply, found, RECORDS * len(reply))
        return found


def _records(owner: bytes, kind: int, reply: bytes) -> tuple[Record, ...]:
    try:
        return resolver_answer.records(reply, owner, kind)
    except wire.Malformed as error:
        log.info("cannot resolve an alias: %s", error)
        return ()
