"""SPDY/3.1 framing without I/O: bytes in, events out; calls in, bytes out.

containerd's streaming server speaks this protocol: many streams in one upgraded connection, each opened with a few headers
that describe its purpose. A frame has a head of 8 bytes and up to 16 MiB of payload; the first bit distinguishes control and
data frames. Headers are compressed in one zlib stream a direction for the whole connection, so every header block must be
decompressed, needed or not. There is no flow control: neither side of Kubernetes' streaming has it.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from agent.streaming.dictionary import DICTIONARY

_VERSION = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_FIN = 0x01
_MAX_FRAME = 1 << 24
_DATA_CHUNK = 64 << 10
_MAX_HEADERS = 1 << 20  # decompressed; upstream's streams carry a few hundred bytes


class SPDYError(Exception):
    """The peer broke the protocol; the connection is of no further use."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer opened a stream."""

    stream_id: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True)
class StreamAccepted:
    """The peer answered our stream."""

    stream_id: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes on a stream; `fin`: the peer sends no more on it."""

    stream_id: int
    data: bytes
    fin: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """The peer gave a stream up; status is SPDY's code (3 refused, 5 cancelled)."""

    stream_id: int
    status: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer closes the connection."""

    status: int


Event = StreamOpened | StreamAccepted | Data | Reset | GoAway


class Connection:
    """One side of a connection: the client's streams have odd numbers, the server's even ones."""

    def __init__(self, *, client: bool = True) -> None:
        self._next_id = 1 if client else 2
        self._out = bytearray()
        self._in = bytearray()
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def open_stream(self, headers: Mapping[str, str], *, fin: bool = False) -> int:
        """Open a stream and return its number."""
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self._control(SYN_STREAM, _FIN if fin else 0, struct.pack(">IIH", stream_id, 0, 0) + self._pack(headers))
        return stream_id

    def accept_stream(self, stream_id: int, headers: Mapping[str, str] | None = None) -> None:
        """Answer a stream that the peer opened."""
        self._control(SYN_REPLY, 0, struct.pack(">I", stream_id) + self._pack(headers or {}))

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Send bytes on a stream; fin closes our half of it."""
        chunks = [data[start : start + _DATA_CHUNK] for start in range(0, len(data), _DATA_CHUNK)] or [b""]
        for chunk in chunks[:-1]:
            self._out += struct.pack(">II", stream_id, len(chunk)) + chunk
        flags = _FIN << 24 if fin else 0
        self._out += struct.pack(">II", stream_id, flags | len(chunks[-1])) + chunks[-1]

    def reset(self, stream_id: int, status: int = 5) -> None:
        """Give a stream up, with SPDY's status code (5: cancel)."""
        self._control(RST_STREAM, 0, struct.pack(">II", stream_id, status))

    def go_away(self) -> None:
        """Return a GOAWAY frame."""
        self._control(GOAWAY, 0, struct.pack(">II", 0, 0))

    def take(self) -> bytes:
        """Return what has to be written to the peer, once."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def receive(self, data: bytes) -> list[Event]:
        """Parse bytes from the peer; return the events. Raise SPDYError."""
        self._in += data
        events: list[Event] = []
        while len(self._in) >= 8:
            first, second = struct.unpack_from(">II", self._in)
            flags, length = second >> 24, second & (_MAX_FRAME - 1)
            if len(self._in) < 8 + length:
                break
            payload = bytes(self._in[8 : 8 + length])
            del self._in[: 8 + length]
            if first >> 31:
                if first >> 16 & 0x7FFF != _VERSION:
                    raise SPDYError(f"SPDY version {first >> 16 & 0x7FFF} is not supported")
                event = self._read_control(first & 0xFFFF, flags, payload)
            else:
                event = Data(first, payload, bool(flags & _FIN))
            if event is not None:
                events.append(event)
        return events

    def _read_control(self, kind: int, flags: int, payload: bytes) -> Event | None:
        fin = bool(flags & _FIN)
        try:
            if kind == SYN_STREAM:
                return StreamOpened(_number(payload) & 0x7FFFFFFF, self._unpack(payload[10:]), fin)
            if kind == SYN_REPLY:
                return StreamAccepted(_number(payload) & 0x7FFFFFFF, self._unpack(payload[4:]), fin)
            if kind == HEADERS:
                self._unpack(payload[4:])  # keeps the compression in step
            elif kind == RST_STREAM:
                return Reset(_number(payload), _number(payload, 4))
            elif kind == GOAWAY:
                return GoAway(_number(payload, 4))
            elif kind == PING and _number(payload) % 2 != self._next_id % 2:
                self._control(PING, 0, payload[:4])  # not an answer to one of ours: answer it
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SPDYError(f"malformed SPDY frame of type {kind}: {error}") from error
        return None

    def _control(self, kind: int, flags: int, payload: bytes) -> None:
        self._out += struct.pack(">HHI", 0x8000 | _VERSION, kind, flags << 24 | len(payload)) + payload

    def _pack(self, headers: Mapping[str, str]) -> bytes:
        block = bytearray(struct.pack(">I", len(headers)))
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        return self._deflate.compress(bytes(block)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def _unpack(self, packed: bytes) -> dict[str, str]:
        block = self._inflate.decompress(packed, _MAX_HEADERS)
        if self._inflate.unconsumed_tail:
            raise SPDYError("SPDY header block too large")
        count, position = _number(block), 4
        headers = {}
        for _ in range(count):
            pair = []
            for _ in range(2):
                length = _number(block, position)
                pair.append(block[position + 4 : position + 4 + length].decode())
                position += 4 + length
            headers[pair[0]] = pair[1]
        return headers


def _number(data: bytes, offset: int = 0) -> int:
    value: int = struct.unpack_from(">I", data, offset)[0]
    return value
