"""Messages are decoded as their fragments come."""

from __future__ import annotations

import base64

import pytest

from agent.streaming.channels import MessageDecoder, choose
from agent.streaming.websocket import Fragment


def decoder(name: str) -> MessageDecoder:
    protocol = choose([name])
    assert protocol is not None
    return MessageDecoder(protocol)


def fragments(message: bytes, size: int) -> list[Fragment]:
    starts = range(0, len(message), size)
    return [Fragment(message[at : at + size], at == 0, at + size >= len(message)) for at in starts]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 64])
@pytest.mark.parametrize("text", [b"", b"a", b"ab", b"abc", b"some more text"])
def test_every_fragment_has_its_messages_channel(size: int, text: bytes) -> None:
    for name, message in (
        ("v4.channel.k8s.io", b"\4" + text),
        ("base64.channel.k8s.io", b"4" + base64.b64encode(text)),
    ):
        read = decoder(name)
        for _ in range(2):
            found = [read.decode(each) for each in fragments(message, size)]
            assert b"".join(data for _, data in found) == text
            assert {channel for channel, _ in found} <= {4, -1}


@pytest.mark.parametrize("message", [b"", b"x", b"0a", b"0a===", b"0YWJ", b"0YW Jj"])
def test_the_rest_of_a_malformed_message_is_dropped_and_the_next_is_read(message: bytes) -> None:
    read = decoder("v4.base64.channel.k8s.io")
    with pytest.raises(ValueError):
        read.decode(Fragment(message))
    assert read.decode(Fragment(b"YWJj", begins=False)) == (-1, b"")
    assert read.decode(Fragment(b"0YWJj")) == (0, b"abc")


def test_nothing_follows_padding() -> None:
    read = decoder("v4.base64.channel.k8s.io")
    assert read.decode(Fragment(b"0YQ==", True, False)) == (0, b"a")
    assert read.decode(Fragment(b"YWJj", False, True)) == (-1, b"")
