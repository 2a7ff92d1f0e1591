"""D-Bus messages: encoding of calls, decoding of replies, and what is no message."""

from __future__ import annotations

import struct

import pytest

from agent.shutdown import bus_messages
from agent.shutdown.bus_messages import Address


def reply(order: str, signature: str, body: bytes, *fields: bytes) -> bytes:
    """Build a reply to call 7 of :1.5."""
    head = bytearray()
    for field in (
        b"\5\1u\0" + struct.pack(order + "I", 7),
        b"\7\1s\0" + struct.pack(order + "I", 4) + b":1.5\0",
        b"\10\1g\0" + bytes((len(signature), *signature.encode(), 0)),
        *fields,
    ):
        head += bytes(-len(head) % 8) + field
    mark = b"l" if order == "<" else b"B"
    first = mark + struct.pack(order + "BBBIII", 2, 0, 1, len(body), 1, len(head))
    return bytes(first + head + bytes(-len(head) % 8) + body)


@pytest.mark.parametrize("order", ["<", ">"])
def test_replies_of_both_byte_orders_are_decoded(order: str) -> None:
    body = struct.pack(order + "I", 1) + struct.pack(order + "I", 2) + b"ab\0" + b"\1t\0" + bytes(2)
    body += struct.pack(order + "Q", 1 << 40)
    data = reply(order, "bsv", body, b"\11\1u\0" + struct.pack(order + "I", 3))
    assert bus_messages.size(data[:16])[0] == len(data)
    message = bus_messages.decode(data)
    assert (message.type, message.reply_to, message.sender, message.descriptor_count) == (2, 7, ":1.5", 3)
    assert message.values() == [True, "ab", 1 << 40]


def test_calls_are_encoded_as_they_are_decoded() -> None:
    data = bus_messages.call(3, Address("a.b", "/a/b", "a.b.C"), "Kill", "ssi", ["x.service", "all", 1])
    assert bus_messages.size(data[:16])[0] == len(data) and data[:4] == b"l\1\0\1"
    message = bus_messages.decode(data)
    assert (message.type, message.member, message.interface, message.signature) == (1, "Kill", "a.b.C", "ssi")
    assert message.values() == ["x.service", "all", 1]


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("s", b"\xff\xff\xff\xff"),
        ("s", struct.pack("<I", 4) + b"ab\0"),
        ("s", struct.pack("<I", 2) + b"\xff\xff\0"),
        ("t", b"\0\0\0\0"),
        ("a{sv}", b"\0\0\0\0"),
        ("v", b"\1v\0\1v\0"),
        ("v", b"\2ab\0"),
    ],
)
def test_bodies_that_are_not_expected_are_invalid(signature: str, body: bytes) -> None:
    with pytest.raises(ValueError):
        bus_messages.decode(reply("<", signature, body)).values()


@pytest.mark.parametrize("data", [b"x" * 16, reply("<", "", b"", b"\3\1s\0" + b"\xff" * 4)])
def test_what_is_no_message_is_invalid(data: bytes) -> None:
    with pytest.raises(ValueError):
        bus_messages.decode(data)
