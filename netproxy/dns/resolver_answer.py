"""Reads the records of a resolver's answer that belong to one name, at a cost that grows with the answer's bytes alone.

A resolver passes on what the name's owner serves, so nothing is decoded that is not needed: each name in the message is
decompressed once, rdata is copied, and only in the types of RFC 1035 are names in it decompressed. Whatever cannot be read
raises `wire.Malformed`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from netproxy.dns import wire
from netproxy.dns.wire import CNAME, NS, PTR, SOA, Malformed, Record

MX = 15
ALIASES = 8
"""Aliases that are followed one after the other."""
MOST = 100
"""Records that are passed on."""
_LONGEST_NAME = 255
_NAMES = {NS: (0, 1), CNAME: (0, 1), PTR: (0, 1), SOA: (0, 2), MX: (2, 1)}
"""Types in whose rdata names may be compressed -> the bytes before the names, and how many these are."""


class _Answer(NamedTuple):
    type: int
    ttl: int
    start: int
    end: int


class _Names:
    """Decompresses the names of a message; each position is read once, however many pointers lead to it."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._known: dict[int, bytes] = {}

    def read(self, position: int) -> tuple[bytes, int]:
        """Return the name at a position in wire format, and the position behind it."""
        try:
            return self._name(position), self._behind(position)
        except IndexError as error:
            raise Malformed("cut off in a name") from error

    def _name(self, at: int) -> bytes:
        message, known = self._message, self._known
        path: list[tuple[int, bytes]] = []
        size, rest = 1, b"\0"
        while at not in known and (length := message[at]):
            if length >= 0xC0:
                path.append((at, b""))
                target = (length & 0x3F) << 8 | message[at + 1]
                if target >= at:
                    raise Malformed("a pointer that does not lead back")
                at = target
                continue
            if length > 63:
                raise Malformed("a label of an unknown kind")
            size += 1 + length
            if size > _LONGEST_NAME:
                raise Malformed("name longer than 255 bytes")
            path.append((at, message[at : at + 1 + length]))
            at += 1 + length
        rest = known.get(at, rest)
        for start, label in reversed(path):
            known[start] = rest = label + rest
        if len(rest) > _LONGEST_NAME:
            raise Malformed("name longer than 255 bytes")
        return rest

    def _behind(self, position: int) -> int:
        while length := self._message[position]:
            if length >= 0xC0:
                return position + 2
            position += 1 + length
        return position + 1


def records(message: bytes, name: bytes, kind: int) -> tuple[Record, ...]:
    """Return the records of a type for a name in wire format, the aliases that lead to them among these, with their owners.

    Others that the answer brings along are left out, and so are those beyond `MOST`.
    """
    names = _Names(message)
    answers = _read(message, names)
    found: list[Record] = []
    owner, followed = name.lower(), {name.lower()}
    for _ in range(ALIASES):
        of_owner = [(given, answer) for given, answer in answers.get(owner, ()) if answer.type in (kind, CNAME)]
        if kind == wire.ANY:
            of_owner = answers.get(owner, [])
        ttls: dict[int, int] = {}
        for _given, answer in of_owner:
            ttls[answer.type] = min(answer.ttl, ttls.get(answer.type, answer.ttl))
        alias = b""
        for given, answer in of_owner[: MOST - len(found)]:
            rdata = _rdata(message, names, answer)
            found.append(Record(answer.type, rdata, given, ttls[answer.type]))
            if answer.type == CNAME and not alias:
                alias = rdata.lower()
        if not alias or alias in followed or kind == CNAME:
            break
        owner = alias
        followed.add(alias)
    return tuple(found)


def _read(message: bytes, names: _Names) -> dict[bytes, list[tuple[bytes, _Answer]]]:
    """Return the records of the answer section by owner in lower case: the owner as written, and where the record is."""
    if len(message) < 12:
        raise Malformed("shorter than a header")
    _, _, questions, count, _, _ = struct.unpack_from("!6H", message)
    position = 12
    for _ in range(questions):
        position = names.read(position)[1] + 4
    found: dict[bytes, list[tuple[bytes, _Answer]]] = {}
    for _ in range(count):
        owner, position = names.read(position)
        if position + 10 > len(message):
            raise Malformed("cut off in a record")
        kind, klass, ttl, length = struct.unpack_from("!HHIH", message, position)
        start, position = position + 10, position + 10 + length
        if position > len(message):
            raise Malformed("cut off in a record")
        if klass == wire.IN:
            found.setdefault(owner.lower(), []).append((owner, _Answer(kind, ttl, start, position)))
    return found


def _rdata(message: bytes, names: _Names, answer: _Answer) -> bytes:
    """Return a record's data without compressed names."""
    if answer.type not in _NAMES:
        return message[answer.start : answer.end]
    before, count = _NAMES[answer.type]
    parts, position = [message[answer.start : answer.start + before]], answer.start + before
    for _ in range(count):
        name, position = names.read(position)
        parts.append(name)
    if position > answer.end:
        raise Malformed("a name longer than its record")
    return b"".join((*parts, message[position : answer.end]))
