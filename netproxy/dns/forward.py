"""Questions about names outside the cluster: asked of the host's resolvers, the answers kept for a while.

Each question goes out from a socket of its own with a fresh random ID, and an answer counts only if both and the
question match, so that a blind forger has to guess 32 bits. Answers are kept as bytes for their lowest TTL, at most
30 s (upstream's `cache 30`); their TTLs are counted down when they are handed out again. Failures are not kept.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from kube.clock import SYSTEM, Clock
from netproxy.dns import wire

log = logging.getLogger(__name__)

TIMEOUT = 2.0
ROUNDS = 2
MAX_KEPT = 10_000
MAX_SECONDS = 30
MAX_BYTES = 8 << 20
"""Of all answers that are kept, with their questions."""
LONGEST_KEPT = 4096
"""Bytes of an answer that is kept; one over TCP may have sixteen times as many."""


class ResolvConf:
    """The nameservers of a resolv.conf, without those that are ourselves; read again when the file changes."""

    def __init__(self, path: str | Path, exclude: tuple[str, ...] = ()) -> None:
        self._path, self._exclude = Path(path), exclude
        self._stamp: tuple[int, int] | None = (-1, -1)
        self._servers: list[str] = []

    def resolvers(self) -> list[str]:
        try:
            status = self._path.stat()
            stamp: tuple[int, int] | None = (status.st_mtime_ns, status.st_ino)
        except OSError:
            stamp = None
        if stamp != self._stamp:
            self._stamp = stamp
            self._servers = self._read()
        return self._servers

    def _read(self) -> list[str]:
        try:
            lines = [line.split() for line in self._path.read_text().splitlines()]
        except OSError as error:
            log.warning("no resolvers for names outside the cluster: %s: %s", self._path, error.strerror)
            return []
        named = [line[1] for line in lines if len(line) >= 2 and line[0] == "nameserver"]
        return [address for address in named if address not in self._exclude]


class Forwarder:
    """Asks resolvers ("address" or "address:port") in their order; `resolvers` is called for each question."""

    def __init__(
        self, resolvers: Callable[[], Sequence[str]], *, clock: Clock = SYSTEM, timeout: float = TIMEOUT
    ) -> None:
        self._resolvers = resolvers
        self._clock, self._timeout = clock, timeout
        self._kept: dict[bytes, tuple[float, float, bytes]] = {}
        self._size = 0

    async def ask(self, query: wire.Query, raw: bytes, *, tcp: bool = False) -> bytes:
        """Return an answer to the client's message, under the client's ID; SERVFAIL where no resolver gives one."""
        key = raw[2:]
        now = self._clock.monotonic()
        kept = self._kept.get(key)
        if kept is not None and kept[1] > now and not (tcp and kept[2][2] & 0x02):
            return raw[:2] + age(kept[2], int(now - kept[0]))[2:]
        for host, port in [_split(text) for text in self._resolvers()] * ROUNDS:
            ident = secrets.token_bytes(2)
            try:
                async with asyncio.timeout(self._timeout):
                    exchange = _over_tcp if tcp else _over_udp
                    answer = await exchange(host, port, ident + raw[2:], query.question)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                continue
            self._keep(key, answer, now)
            return raw[:2] + answer[2:]
        return wire.reply(query, wire.SERVFAIL, limit=512, authoritative=False)

    def _keep(self, key: bytes, answer: bytes, now: float) -> None:
        seconds = lowest_ttl(answer)
        if not seconds or answer[3] & 0x0F not in (wire.NOERROR, wire.NXDOMAIN):
            return
        size = len(key) + len(answer)
        if size > LONGEST_KEPT:
            return
        if len(self._kept) >= MAX_KEPT or self._size + size > MAX_BYTES:
            self._kept.clear()
            self._size = 0
        replaced = self._kept.pop(key, None)
        self._size += size - (len(key) + len(replaced[2]) if replaced is not None else 0)
        self._kept[key] = (now, now + min(seconds, MAX_SECONDS), answer)


def _split(text: str) -> tuple[str, int]:
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
    same_question = data[12 : 12 + len(question)].lower() == question.lower()
    return len(data) >= 12 and data[:2] == message[:2] and bool(data[2] & 0x80) and same_question


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
    """Return the lowest TTL of a message's records in seconds, 0 where it has none."""
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
