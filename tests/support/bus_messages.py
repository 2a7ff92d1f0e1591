"""Messages of D-Bus of any size and header, for tests."""

from __future__ import annotations

import struct


def encoded(kind: int, *fields: bytes, body: bytes = b"") -> bytes:
    """Build a message with header fields."""
    head = bytearray()
    for field in fields:
        head += bytes(-len(head) % 8) + field
    first = b"l" + struct.pack("<BBBIII", kind, 0, 1, len(body), 1, len(head))
    return bytes(first + head + bytes(-len(head) % 8) + body)


def number(code: int, value: int) -> bytes:
    """Build a header field."""
    return bytes((code, 1)) + b"u\0" + struct.pack("<I", value)


def text(code: int, kind: str, value: str) -> bytes:
    """Build a header field with an object path ("o"), a string ("s") or a signature ("g")."""
    length = bytes((len(value),)) if kind == "g" else struct.pack("<I", len(value))
    return bytes((code, 1)) + kind.encode() + b"\0" + length + value.encode() + b"\0"


def strings(*values: str) -> bytes:
    """Build a body of strings."""
    body = bytearray()
    for value in values:
        body += bytes(-len(body) % 4) + struct.pack("<I", len(value)) + value.encode() + b"\0"
    return bytes(body)
