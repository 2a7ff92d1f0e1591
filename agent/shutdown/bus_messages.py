"""Messages of D-Bus on the wire: those that the agent sends, and as much of received ones as it needs (D-Bus specification)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

CALL, REPLY, ERROR, SIGNAL = 1, 2, 3, 4
HEAD_BYTES = 16
"""Bytes of a message that its size is known from."""
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL, _DESTINATION, _SENDER, _SIGNATURE, _DESCRIPTORS = range(1, 10)
_KINDS = {_PATH: "o", _INTERFACE: "s", _MEMBER: "s", _DESTINATION: "s", _SIGNATURE: "g"}
_NUMBERS = {"b": ("I", 4), "i": ("i", 4), "u": ("I", 4), "h": ("I", 4), "t": ("Q", 8)}


@dataclass(frozen=True, slots=True)
class Address:
    """Object and interface of a service on the bus."""

    name: str
    path: str
    interface: str


@dataclass(slots=True)
class Message:
    """A received message; its body is decoded when it is needed."""

    type: int
    sender: str
    interface: str
    member: str
    error: str
    reply_to: int
    """Serial number of the call that a reply or an error is for."""
    signature: str
    descriptor_count: int
    order: str
    """Sign of the byte order for `struct`."""
    body: bytes
    descriptors: list[int] = field(default_factory=list)

    def values(self) -> list[object]:
        """Decode the body: booleans, numbers, strings and variants of them. Raise ValueError for others."""
        reader, found, signature = _Reader(self.body, self.order), list[object](), self.signature
        for kind in signature:
            found.append(reader.value(kind))
        return found


def size(head: bytes) -> tuple[int, int]:
    """Return the bytes of a message and those of its header, from its first `HEAD_BYTES`. Raise ValueError."""
    body, _, fields = struct.unpack_from(_order(head) + "III", head, 4)
    header = HEAD_BYTES + (fields + 7) // 8 * 8
    return header + body, header


def _order(head: bytes) -> str:
    if head[0] not in b"lB":
        raise ValueError("no byte order")
    return "<" if head[0] == ord("l") else ">"


def decode(data: bytes) -> Message:
    """Decode a whole message's header. Raise ValueError."""
    order = _order(data)
    header = size(data)[1]
    (length,) = struct.unpack_from(order + "I", data, 12)
    reader = _Reader(data[: HEAD_BYTES + length], order, HEAD_BYTES)
    fields: dict[int, object] = {}
    while reader.position < HEAD_BYTES + length:
        reader.align(8)
        code = reader.byte()
        fields[code] = reader.value("v")

    def text(code: int) -> str:
        value = fields.get(code, "")
        return value if isinstance(value, str) else ""

    def number(code: int) -> int:
        value = fields.get(code, 0)
        return value if isinstance(value, int) else 0

    return Message(
        type=data[1],
        sender=text(_SENDER),
        interface=text(_INTERFACE),
        member=text(_MEMBER),
        error=text(_ERROR_NAME),
        reply_to=number(_REPLY_SERIAL),
        signature=text(_SIGNATURE),
        descriptor_count=number(_DESCRIPTORS),
        order=order,
        body=data[header:],
    )


class _Reader:
    """Values one after another; raises ValueError where there are none."""

    def __init__(self, data: bytes, order: str, position: int = 0) -> None:
        self._data, self._order, self.position = data, order, position

    def align(self, to: int) -> None:
        self.position += -self.position % to

    def byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        taken = self._data[self.position : self.position + count]
        if len(taken) < count:
            raise ValueError("a message ends too early")
        self.position += count
        return taken

    def value(self, kind: str) -> object:
        """Read a value of a type's letter; a variant holds a value of one other letter."""
        if kind == "v":
            inner = self._text(self.byte())
            if len(inner) != 1 or inner == "v":
                raise ValueError(f"a variant of type {inner!r}")
            return self.value(inner)
        if kind in "so":
            self.align(4)
            return self._text(int(struct.unpack(self._order + "I", self._take(4))[0]))
        if kind == "g":
            return self._text(self.byte())
        if kind not in _NUMBERS:
            raise ValueError(f"a value of type {kind!r}")
        letter, width = _NUMBERS[kind]
        self.align(width)
        number = int(struct.unpack(self._order + letter, self._take(width))[0])
        return bool(number) if kind == "b" else number

    def _text(self, length: int) -> str:
        return self._take(length + 1)[:-1].decode()


def call(serial: int, to: Address, member: str, signature: str, body: Sequence[str | int]) -> bytes:
    """Encode a call with strings ("s") and numbers ("i")."""
    values = bytearray()
    for kind, value in zip(signature, body, strict=True):
        values += bytes(-len(values) % 4)
        values += _string(value) if isinstance(value, str) else struct.pack(f"<{_NUMBERS[kind][0]}", value)
    fields = bytearray()
    for code, value in (
        (_PATH, to.path),
        (_INTERFACE, to.interface),
        (_MEMBER, member),
        (_DESTINATION, to.name),
        (_SIGNATURE, signature),
    ):
        fields += bytes(-len(fields) % 8)
        fields += bytes((code, 1, ord(_KINDS[code]), 0))
        fields += _string(value) if code != _SIGNATURE else bytes((len(value), *value.encode(), 0))
    head = b"l" + struct.pack("<BBBIII", CALL, 0, 1, len(values), serial, len(fields))
    return bytes(head + fields + bytes(-len(fields) % 8) + values)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data + b"\0"
