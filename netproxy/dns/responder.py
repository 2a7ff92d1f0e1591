"""Turns a client's message into the bytes of the answer, with a cache of encoded answers.

What is kept is found by what an answer depends on: the name without regard to case, the type, and the room for records.
However a client spells a name and whatever options it sends, it gets the same records, behind its own ID and question. Of
several addresses each comes first once (round robin), for clients take the first. A change of a Service drops what
was kept about it; `*` is dropped at every change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from netproxy import metrics
from netproxy.dns import reply, wire
from netproxy.dns.alias_resolver import AliasResolver
from netproxy.dns.answer_cache import AnswerCache, Key
from netproxy.dns.answer_factory import Answer
from netproxy.dns.forwarder import Forwarder
from netproxy.dns.zone import TYPES, Zone

MAX_CACHED, MAX_CACHED_BYTES = 20_000, 16 << 20
"""Answers of Services."""
MAX_OTHERS, MAX_OTHERS_BYTES = 2_000, 2 << 20
"""Answers that a name does not exist, or about pods and addresses: search paths request the same ones, but a client can make
up any number of others."""
TCP_LIMIT = 65535
MAX_CACHED_QUERY = 300
"""Bytes of a message whose reading is kept: a name of 255 bytes, a type, and EDNS without padding."""


class Pending(NamedTuple):
    """A question that needs the host's resolvers: about a name outside the zone (no answer), or one that leads to such."""

    query: wire.Query
    answer: Answer | None
    limit: int
    tcp: bool


class Responder:
    """Answers DNS messages; `ready` returns whether the cluster's objects are known yet."""

    def __init__(self, zone: Zone, forwarder: Forwarder, ready: Callable[[], bool] = lambda: True) -> None:
        self._zone, self._forwarder, self._ready = zone, forwarder, ready
        self._follower = AliasResolver(forwarder)
        self._services = AnswerCache(MAX_CACHED, MAX_CACHED_BYTES)
        self._others = AnswerCache(MAX_OTHERS, MAX_OTHERS_BYTES)
        self._cache_counter = metrics.DNS_QUERIES.labels("kept")
        self._zone_counter = metrics.DNS_QUERIES.labels("zone")

    def forget(self, key: str) -> None:
        """Drop what was kept about a Service ("namespace/name") that changed."""
        self._services.forget(key)
        self._others.forget(key)
        self._others.forget("*")

    def begin(self, data: bytes, *, tcp: bool = False) -> bytes | Pending:
        """Return the answer to a message if it is ready or can be computed here, or what `finish` completes.

        b"" means that the message deserves no answer.
        """
        message = b"\0\0" + data[2:]
        try:
            query, key = (_read if len(data) <= MAX_CACHED_QUERY else _read.__wrapped__)(message, tcp=tcp)
        except wire.Malformed:
            return reply.error(data, wire.FORMERR)
        limit = TCP_LIMIT if tcp else query.limit
        found = self._look_up(query, key, limit)
        if isinstance(found, bytes):
            return data[:2] + found[2:]
        return Pending(query._replace(id=int.from_bytes(data[:2])), found, limit, tcp)

    async def finish(self, pending: Pending) -> bytes:
        """Return the answer to a message that needs the host's resolvers."""
        query, answer, limit, tcp = pending
        if answer is None:
            metrics.DNS_QUERIES.labels("forwarded").inc()
            return await self._forwarder.ask(query, tcp=tcp)
        onward, cut = await self._follower.follow(answer.follow, query.type, tcp=tcp)
        return reply.message(query, _body(query, answer, limit, onward, cut=cut))

    def quick(self, data: bytes, *, tcp: bool = False) -> bytes | None:
        """Return the answer to a message without the host's resolvers; None if it needs them."""
        found = self.begin(data, tcp=tcp)
        return found if isinstance(found, bytes) else None

    async def slow(self, data: bytes, *, tcp: bool = False) -> bytes:
        """Return the answer to a message, one about a name outside the zone too."""
        found = self.begin(data, tcp=tcp)
        return found if isinstance(found, bytes) else await self.finish(found)

    def _look_up(self, query: wire.Query, key: Key, limit: int) -> bytes | Answer | None:
        """Return a message, or an answer that leads to a name outside the zone; None if the question is about one."""
        refused = _refuse(query)
        if refused is not None:
            return reply.without_records(query, refused)
        cached = self._services.get(key) or self._others.get(key)
        if cached is not None:
            self._cache_counter.inc()
            cached.rotation += 1
            return reply.message(query, cached.body, cached.rotation)
        if not self._ready():
            return reply.without_records(query, wire.SERVFAIL)
        answer = self._zone.answer(query.name, key[1], key[2])
        if answer is None or answer.follow:
            return answer
        self._zone_counter.inc()
        body = _body(query, answer, limit, cut=answer.cut)
        made_up = answer.rcode != wire.NOERROR or answer.about == "*"
        (self._others if made_up else self._services).store(key, body, answer.about)
        return reply.message(query, body)


def _key(query: wire.Query, limit: int) -> Key:
    return query.owner, query.type if query.type in TYPES else 0, reply.room(query, limit)


@lru_cache(maxsize=1024)
def _read(message: bytes, *, tcp: bool) -> tuple[wire.Query, Key]:
    """Read a message. Most are spelled as one before; its answer is not found by that, so others lose nothing."""
    query = wire.parse_query(message)
    return query, _key(query, TCP_LIMIT if tcp else query.limit)


def _refuse(query: wire.Query) -> int | None:
    if query.opcode != 0:
        return wire.NOTIMP
    if query.edns_version > 0:
        return wire.BADVERS
    return None if query.klass == wire.IN else wire.REFUSED


def _body(
    query: wire.Query, answer: Answer, limit: int, onward: tuple[wire.Record, ...] = (), *, cut: bool = False
) -> reply.Body:
    body = reply.body(
        answer.rcode,
        (*answer.answers, *onward),
        answer.authority,
        answer.additional,
        room=reply.room(query, limit),
    )
    return body._replace(flags=body.flags | wire.TC) if cut else body
