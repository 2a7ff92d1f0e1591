"""The channel protocols of Kubernetes' WebSockets: the stream that a message belongs to, and its encoding.

A message's first byte is a channel: 0 stdin, 1 stdout, 2 stderr, 3 the final status, 4 the terminal's size. The base64 variants
send text: a digit and base64. From v4 the status is a `Status` object, before it was an error text. v5 adds channel 255, whose
message names a channel that the client closes: the end of stdin.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from agent.streaming.websocket import Fragment

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

STREAM_NAMES = {STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", ERROR: "error", RESIZE: "resize"}


@dataclass(frozen=True, slots=True)
class ChannelProtocol:
    """One subprotocol's encoding."""

    name: str
    text: bool = False
    status_object: bool = True
    half_close: bool = False

    def encode(self, channel: int, data: bytes) -> bytes:
        """Write a message."""
        if self.text:
            return b"%d" % channel + base64.b64encode(data)
        return bytes((channel,)) + data

    def encode_status(self, status: bytes) -> bytes:
        """Write the final status, given as a Status object in JSON."""
        if self.status_object:
            return status
        found = json.loads(status)
        return b"" if found.get("status") == "Success" else str(found.get("message", "")).encode()


class MessageDecoder:
    """Decodes a client's messages as their fragments come; base64 in groups of 4 characters."""

    def __init__(self, protocol: ChannelProtocol) -> None:
        self._text = protocol.text
        self._channel: int | None = None
        self._group = b""
        """Base64 characters of an incomplete group."""
        self._wrong = False

    def decode(self, fragment: Fragment) -> tuple[int, bytes]:
        """Return the channel and data of a fragment. Raise ValueError; the rest of such a message has no data."""
        data = fragment.data
        if fragment.begins:
            self._channel, self._group, self._wrong = None, b"", False
        if self._wrong:
            return -1, b""
        try:
            if self._channel is None and data:
                self._channel = int(data[:1]) if self._text else data[0]
                data = data[1:]
            if self._channel is None and fragment.ends:
                raise ValueError("a message without a channel")
            if self._channel is None:
                return -1, b""
            return self._channel, self._decoded(data, ends=fragment.ends) if self._text else data
        except ValueError:
            self._wrong = True
            raise

    def _decoded(self, data: bytes, *, ends: bool) -> bytes:
        data = self._group + data
        whole = len(data) if ends else len(data) // 4 * 4
        data, self._group = data[:whole], data[whole:]
        self._wrong = data.endswith(b"=")  # nothing may follow padding
        return base64.b64decode(data, validate=True)


_PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        ChannelProtocol("v5.channel.k8s.io", half_close=True),
        ChannelProtocol("v4.channel.k8s.io"),
        ChannelProtocol("v4.base64.channel.k8s.io", text=True),
        ChannelProtocol("channel.k8s.io", status_object=False),
        ChannelProtocol("base64.channel.k8s.io", text=True, status_object=False),
        ChannelProtocol("", status_object=False),
    )
}


def choose(offered: Sequence[str]) -> ChannelProtocol | None:
    """Return the first offered protocol that is known; an empty offer means the oldest one."""
    if not offered:
        return _PROTOCOLS[""]
    return next((_PROTOCOLS[name] for name in offered if name and name in _PROTOCOLS), None)
