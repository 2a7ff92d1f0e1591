"""Protobuf bodies."""

from __future__ import annotations

from collections.abc import Callable

from kube.schema import wire
from tests.support.cost_cases.inputs import cases


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


CASES = cases("protobuf", PROTOBUF, read_protobuf)
