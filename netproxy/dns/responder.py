"""From a client's message to the answer's bytes, with the answers kept ready.

The fast way is one dictionary look-up: the message after its ID (flags, question, EDNS) leads to finished answers, which
lack only the ID. An answer with several addresses is kept in several rotations handed out in turn, so that clients which
take the first are spread. A change of a Service drops what was kept about it; `*` is dropped at every change.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable

from netproxy import metrics
from netproxy.dns import wire
from netproxy.dns.forward import Forwarder
from netproxy.dns.wire import Record
from netproxy.dns.zone import Answer, Zone

log = logging.getLogger(__name__)

ROTATIONS = 8
MAX_KEPT = 20_000
MAX_KEPT_BYTES = 16 << 20
"""Of questions and answers: a headless Service's answer is long, and a question can be spelled in many ways."""
MAX_MISSING = 2_000
"""Of those kept, about names that do not exist: search paths ask for the same ones, but there are any number of others."""
LONGEST_KEPT = 300
"""Bytes of a message that may be a key: a name of 255 bytes, a type, and EDNS without padding."""
TCP_LIMIT = 65535


class _Kept:
    __slots__ = ("messages", "turn")

    def __init__(self, messages: list[bytes]) -> None:
        self.messages, self.turn = messages, 0


class Responder:
    """Answers DNS messages; `ready` tells whether the cluster's objects are known yet."""

    def __init__(self, zone: Zone, forwarder: Forwarder, ready: Callable[[], bool] = lambda: True) -> None:
        self._zone, self._forwarder, self._ready = zone, forwarder, ready
        self._kept: dict[bytes, _Kept] = {}
        self._kept_bytes = 0
        self._about: defaultdict[str, set[bytes]] = defaultdict(set)
        self._missing: dict[bytes, str] = {}
        """The kept answers that a name does not exist, and what they are about."""
        self._kept_counter = metrics.DNS_QUERIES.labels("kept")
        self._zone_counter = metrics.DNS_QUERIES.labels("zone")

    def forget(self, key: str) -> None:
        """Drop what was kept about a Service ("namespace/name") that changed."""
        for about in (key, "*"):
            for tail in self._about.pop(about, ()):
                self._kept.pop(tail, None)
                self._missing.pop(tail, None)

    def quick(self, data: bytes) -> bytes | None:
        """Return the answer to a UDP message if it is ready or can be computed here; None: use `slow`.

        b"" means that the message deserves no answer.
        """
        kept = self._kept.get(data[2:])
        if kept is not None:
            self._kept_counter.inc()
            kept.turn = (kept.turn + 1) % len(kept.messages)
            return data[:2] + kept.messages[kept.turn]
        try:
            query = wire.parse_query(data)
        except wire.Malformed:
            return wire.error_reply(data, wire.FORMERR)
        limit = min(query.udp_size, wire.OUR_UDP_SIZE) if query.edns else 512
        refused = self._refuse(query, limit)
        if refused is not None:
            return refused
        answer = self._zone.answer(query.name, query.type)
        if answer is None or answer.follow:
            return None
        self._zone_counter.inc()
        messages = _rotations(query, answer, limit)
        self._keep(data[2:], messages, answer.about, missing=answer.rcode == wire.NXDOMAIN)
        return messages[0]

    async def slow(self, data: bytes, *, tcp: bool = False) -> bytes:
        """Return the answer to a message that came over TCP or is about a name outside the zone."""
        try:
            query = wire.parse_query(data)
        except wire.Malformed:
            return wire.error_reply(data, wire.FORMERR)
        limit = TCP_LIMIT if tcp else (min(query.udp_size, wire.OUR_UDP_SIZE) if query.edns else 512)
        refused = self._refuse(query, limit)
        if refused is not None:
            return refused
        answer = self._zone.answer(query.name, query.type)
        if answer is None:
            metrics.DNS_QUERIES.labels("forwarded").inc()
            return await self._forwarder.ask(query, data, tcp=tcp)
        followed = await self._follow(answer, query, tcp) if answer.follow else answer.answers
        return wire.reply(query, answer.rcode, followed, answer.authority, answer.additional, limit=limit)

    def _refuse(self, query: wire.Query, limit: int) -> bytes | None:
        if query.opcode != 0:
            return wire.reply(query, wire.NOTIMP, limit=limit, authoritative=False)
        if query.edns and query.edns_version > 0:
            return wire.reply(query, wire.BADVERS, limit=limit, authoritative=False)
        if query.klass != wire.IN:
            return wire.reply(query, wire.REFUSED, limit=limit, authoritative=False)
        if not self._ready():
            return wire.reply(query, wire.SERVFAIL, limit=limit, authoritative=False)
        return None

    async def _follow(self, answer: Answer, query: wire.Query, tcp: bool) -> tuple[Record, ...]:
        """Resolve the name that a CNAME leads to, for stub resolvers do not do it themselves."""
        # Only here are names in an answer decompressed; the library is loaded when that first happens.
        import dns.exception
        import dns.message
        import dns.rdatatype

        try:
            message = dns.message.make_query(answer.follow, dns.rdatatype.RdataType(query.type)).to_wire()
            reply = await self._forwarder.ask(wire.parse_query(message), message, tcp=tcp)
            found = dns.message.from_wire(reply)
        except (dns.exception.DNSException, wire.Malformed, ValueError) as error:
            log.info("cannot follow %s: %s", answer.follow, error)
            return answer.answers
        onward = [
            Record(rdata.rdtype, rdata.to_wire() or b"", rrset.name.to_wire() or b"", rrset.ttl)
            for rrset in found.answer
            for rdata in rrset
        ]
        return (*answer.answers, *onward)

    def _keep(self, tail: bytes, messages: list[bytes], about: str, *, missing: bool) -> None:
        if len(tail) > LONGEST_KEPT:
            return
        size = len(tail) + sum(map(len, messages))
        if len(self._kept) >= MAX_KEPT or self._kept_bytes + size > MAX_KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = 0
            self._about.clear()
            self._missing.clear()
        self._kept_bytes += size  # what is forgotten is not taken off: it is cleared a little earlier
        if missing:
            if len(self._missing) >= MAX_MISSING:
                self._forget_missing()
            self._missing[tail] = about
        self._kept[tail] = _Kept([message[2:] for message in messages])
        self._about[about].add(tail)

    def _forget_missing(self) -> None:
        for tail, about in self._missing.items():
            self._kept.pop(tail, None)
            tails = self._about.get(about)
            if tails is not None:
                tails.discard(tail)
                if not tails:
                    del self._about[about]
        self._missing.clear()


def _rotations(query: wire.Query, answer: Answer, limit: int) -> list[bytes]:
    count = len(answer.answers)
    turns = min(count, ROTATIONS) if count > 1 and answer.answers[0].type in (wire.A, wire.AAAA) else 1
    return [
        wire.reply(
            query,
            answer.rcode,
            answer.answers[turn:] + answer.answers[:turn],
            answer.authority,
            answer.additional,
            limit=limit,
        )
        for turn in range(turns)
    ]
