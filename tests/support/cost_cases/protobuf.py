"""Protobuf bodies."""

from __future__ import annotations

from collections.abc import Callable

from kube.schema import wire
from tests.support.cost_cases.inputs import cases, fill
from tests.support.cost_cases.json_bodies import JSON


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _nested(number: int, depth: int, inner: bytes) -> bytes:
    """Nest messages from the inside out, in one pass."""
    heads, length = [], len(inner)
    for _ in range(depth):
        heads.append(_varint(number << 3 | 2) + _varint(length))
        length += len(heads[-1])
    return b"".join(reversed(heads)) + inner


def _managed(text: bytes) -> bytes:
    """Return the fields of metadata that hold JSON."""
    return _field(17, _field(7, _field(1, text)))


JSON_WITHIN: dict[str, Callable[[int], bytes]] = {
    **{
        name: JSON[name]
        for name in ("numbers", "a long integer", "a long float", "deep", "deep and wide", "unknown fields")
    },
    **{name: JSON[name] for name in ("brackets in strings", "escapes and many brackets", "no end of a string")},
    "deep and closed": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "deep objects": lambda size: b'{"f:a":' * (size // 8) + b"1" + b"}" * (size // 8),
    "levels as deep as may be": lambda size: b"[" + (b"[" * 390 + b"]" * 390 + b",") * (size // 781) + b"1]",
    "small objects": fill(b"{},", "[", "1]"),
}
PROTOBUF: dict[str, Callable[[int], tuple[bytes, str]]] = {
    "empty items": lambda size: (_field(2, _field(2, b"") * (size // 2)), "Pod"),
    "map entries": lambda size: (
        _field(2, b"".join(_field(1, b"k%d" % i) for i in range(size // 10)) * 2),
        "ConfigMap",
    ),
    "unknown numbers": lambda size: (b"\x78\x01" * (size // 2), "Pod"),
    "long numbers": lambda size: (b"\x78" + b"\xff" * size, "Pod"),
    "deep": lambda size: (_nested(21, size // 4, b""), "JSONSchemaProps"),
    "deep with a large inside": lambda size: (_nested(21, 200, _field(1, b"x" * size)), "JSONSchemaProps"),
    "one field again and again": lambda size: (_field(3, b"\x0a\x00") * (size // 4), "Pod"),
}


def read_protobuf(given: tuple[bytes, str]) -> object:
    message, kind = given
    return wire.decode(message, "apiextensions_v1" if kind == "JSONSchemaProps" else "core_v1", kind)


def read_metadata(text: bytes) -> object:
    return wire.decode(_managed(text), "meta_v1", "ObjectMeta")


def read_many(text: bytes) -> object:
    """Read the JSON in pieces of a thousand bytes, each in a message."""
    pieces = [b'"%b"' % text[at : at + 1000].replace(b'"', b"").replace(b"\\", b"") for at in range(0, len(text), 1000)]
    return wire.decode(b"".join(map(_managed, pieces)), "meta_v1", "ObjectMeta")


CASES = [
    *cases("protobuf", PROTOBUF, read_protobuf),
    *cases("JSON within protobuf", JSON_WITHIN, read_metadata),
    *cases("JSON in many messages of protobuf", {"text": fill(b"a"), "commas": fill(b",")}, read_many),
]
