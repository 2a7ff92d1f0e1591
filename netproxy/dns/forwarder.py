"""Forwards queries for names outside the cluster to the host's resolvers, and caches the answers.

Each question goes out from a socket of its own with a fresh random ID, and an answer counts only if both and the
question match, so that a blind forger has to guess 32 bits. Of the client's message only the question, three flags, and
whether it has EDNS and DO are passed on. Answers are kept as bytes for their lowest TTL, at most 30 s (upstream's
`cache 30`); their TTLs are counted down when they are handed out again. Failures are not kept.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube.clock import SYSTEM, Clock
from netproxy.dns import wire
from netproxy.dns.answer_cache import BoundedCache
from netproxy.dns.reply import opt_record, without_records

log = logging.getLogger(__name__)

TIMEOUT = 2.0
ROUNDS = 2
MAX_RESOLVERS = 3
"""Of a resolv.conf, as the C library has it (MAXNS): it bounds the time until a client gets SERVFAIL."""
MAX_CACHED = 10_000
MAX_SECONDS = 30
MAX_BYTES = 8 << 20
"""Of all answers that are kept, with their questions."""
MAX_CACHED_ANSWER = 4096
"""Bytes of an answer that is kept; one over TCP may have sixteen times as many."""


class ResolvConf:
    """The nameservers of a resolv.conf, without those that are ourselves; read again when the file changes."""

    def __init__(self, path: str | Path, exclude: tuple[str, ...] = ()) -> None:
        self._path, self._exclude = Path(path), exclude
        self._stamp: tuple[int, int] | None = (-1, -1)
        self._reported: tuple[int, int] | None = (-1, -1)
        self._servers: list[str] = []

    def resolvers(self) -> list[str]:
        try:
            status = self._path.stat()
            stamp: tuple[int, int] | None = (status.st_mtime_ns, status.st_ino)
        except OSError:
            stamp = None
        if stamp != self._stamp:
            try:
                self._servers = self._read()
            except OSError as error:
                if stamp != self._reported:
                    log.warning("no new resolvers for names outside the cluster: %s: %s", self._path, error.strerror)
                    self._reported = stamp
                if stamp is not None:
                    return self._servers  # the file is there and is read again at the next query
                self._servers = []
            self._stamp = stamp
        return self._servers

    def _read(self) -> list[str]:
        lines = [line.split() for line in self._path.read_text(errors="replace").splitlines()]
        named = [line[1] for line in lines if len(line) >= 2 and line[0] == "nameserver"]
        return [address for address in named if address not in self._exclude][:MAX_RESOLVERS]


@dataclass(slots=True)
class _InFlight:
    """A question that is under way, and how many clients wait for its answer."""

    task: asyncio.Task[bytes]
    waiters: int = 0


class Forwarder:
    """Asks resolvers ("address" or "address:port") in their order; `resolvers` is called for each question."""

    def __init__(
        self, resolvers: Callable[[], Sequence[str]], *, clock: Clock = SYSTEM, timeout: float = TIMEOUT
    ) -> None:
        self._resolvers = resolvers
        self._clock, self._timeout = clock, timeout
        self._cached: BoundedCache[Hashable, tuple[float, float, bytes]] = BoundedCache(MAX_CACHED, MAX_BYTES)
        """Times when an answer came and until when it is cached, and the answer."""
        self._in_flight: dict[Hashable, _InFlight] = {}

    async def ask(self, query: wire.Query, *, tcp: bool = False) -> bytes:
        """Return an answer to a client's question, with its ID and spelling; SERVFAIL where no resolver gives one.

        A query that is running is not sent a second time: parallel queries would make spoofed answers easier.
        """
        flags = query.flags & (wire.RD | wire.AD | wire.CD)
        limit = 0 if tcp else query.limit
        key = (query.owner, query.type, flags, query.edns, query.dnssec, limit)
        now = self._clock.monotonic()
        cached = self._cached.get(key)
        if cached is not None and cached[1] > now:
            return _for_query(age(cached[2], int(now - cached[0])), query)
        in_flight = self._in_flight.get(key)
        if in_flight is None:
            edns = opt_record(limit or wire.OUR_UDP_SIZE, dnssec=query.dnssec) if query.edns else b""
            message = struct.pack("!5H", flags, 1, 0, 0, int(query.edns)) + query.question + edns
            task = asyncio.create_task(self._ask(key, message, query.question, limit), name="dns question")
            in_flight = self._in_flight[key] = _InFlight(task)
            task.add_done_callback(lambda _: self._forget(key, in_flight))
        in_flight.waiters += 1
        try:
            answer = await asyncio.shield(in_flight.task)
        finally:
            in_flight.waiters -= 1
            if not in_flight.waiters:  # its socket goes with it
                self._forget(key, in_flight)
                in_flight.task.cancel()
        if not answer:
            return without_records(query, wire.SERVFAIL)
        if limit and len(answer) > limit:
            return without_records(query, wire.NOERROR, wire.TC)
        return _for_query(answer, query)

    def _forget(self, key: Hashable, in_flight: _InFlight) -> None:
        if self._in_flight.get(key) is in_flight:
            del self._in_flight[key]

    async def _ask(self, key: Hashable, message: bytes, question: bytes, limit: int) -> bytes:
        """Ask one resolver after the other, and keep the answer; b"" if none gives one. `message` lacks its ID."""
        exchange = _over_udp if limit else _over_tcp
        for resolver in [*self._resolvers()] * ROUNDS:
            try:
                host, port = _split(resolver)
                async with asyncio.timeout(self._timeout):
                    answer = await exchange(host, port, secrets.token_bytes(2) + message, question)
            except (OSError, ValueError, asyncio.IncompleteReadError):
                continue
            if not limit or len(answer) <= limit:
                self._store(key, answer, self._clock.monotonic())
            return answer
        return b""

    def _store(self, key: Hashable, answer: bytes, now: float) -> None:
        if len(answer) > MAX_CACHED_ANSWER or answer[3] & 0x0F not in (wire.NOERROR, wire.NXDOMAIN):
            return
        seconds = lowest_ttl(answer)
        if seconds:
            self._cached.put(key, (now, now + min(seconds, MAX_SECONDS), answer), len(answer) + 255)


def _for_query(answer: bytes, query: wire.Query) -> bytes:
    """Return an answer under a query's ID, with its spelling of the question, which is as long."""
    question = query.question
    return struct.pack("!H", query.id) + answer[2:12] + question + answer[12 + len(question) :]


def _split(text: str) -> tuple[str, int]:
    """Return a resolver's address and port; ValueError for what is none."""
    if text.count(":") == 1:
        host, port = text.split(":")
        return host, int(port)
    return text, 53


class _Exchange(asyncio.DatagramProtocol):
    """Waits for the one datagram that answers the question."""

    def __init__(self, message: bytes, question: bytes) -> None:
        self._message, self._question = message, question
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if _answers(data, self._message, self._question) and not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc)


def _answers(data: bytes, message: bytes, question: bytes) -> bool:
    """Return whether a message is the answer to ours: its ID, and one question, whose name may be spelled otherwise."""
    if len(data) < 12 + len(question) or data[:2] != message[:2] or not data[2] & 0x80 or data[4:6] != b"\0\1":
        return False
    found = data[12 : 12 + len(question)]
    return found[:-4].lower() == question[:-4].lower() and found[-4:] == question[-4:]


async def _over_udp(host: str, port: int, message: bytes, question: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: _Exchange(message, question), remote_addr=(host, port)
    )
    try:
        transport.sendto(message)
        return await protocol.answer
    finally:
        transport.close()


async def _over_tcp(host: str, port: int, message: bytes, question: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(struct.pack("!H", len(message)) + message)
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        answer = await reader.readexactly(length)
    finally:
        writer.close()
    if not _answers(answer, message, question):
        raise OSError("an answer to another question")
    return answer


def _ttl_positions(message: bytes) -> list[int]:
    """Return where each record's TTL stands, OPT aside; [] for a message that does not parse."""
    try:
        counts = struct.unpack_from("!4H", message, 4)
        position = 12
        for _ in range(counts[0]):
            position = _skip_name(message, position) + 4
        found = []
        for _ in range(sum(counts[1:])):
            position = _skip_name(message, position)
            kind, _klass, _ttl, length = struct.unpack_from("!HHIH", message, position)
            if kind != wire.OPT:
                found.append(position + 4)
            position += 10 + length
    except (IndexError, struct.error):
        return []
    return found


def _skip_name(message: bytes, position: int) -> int:
    while length := message[position]:
        if length >= 0xC0:
            return position + 2
        position += 1 + length
    return position + 1


def lowest_ttl(message: bytes) -> int:
    """Return the lowest TTL of a message's records in seconds, 0 if it has none."""
    positions = _ttl_positions(message)
    return min((struct.unpack_from("!I", message, position)[0] for position in positions), default=0)


def age(message: bytes, seconds: int) -> bytes:
    """Return the message with every TTL lower by so many seconds, at least 0."""
    if seconds <= 0:
        return message
    out = bytearray(message)
    for position in _ttl_positions(message):
        (ttl,) = struct.unpack_from("!I", out, position)
        struct.pack_into("!I", out, position, max(0, ttl - seconds))
    return bytes(out)
