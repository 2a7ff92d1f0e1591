"""Splits large WebSocket frames of a client into fragments before they are parsed (RFC 6455, sections 5.2 and 5.4).

A parser that returns whole frames holds as much as a client says that a frame has. Here only headers are read: of a data frame
that has more than FRAGMENT bytes, the payload passes through unchanged with a continuation frame's header every FRAGMENT bytes.
The masking key repeats every 4 bytes, so each fragment has the frame's own key. Control frames cannot come within a frame.
"""

from __future__ import annotations

FRAGMENT = 16 << 10
"""Bytes of payload of the largest data frame that is left; a multiple of the 4 bytes of a masking key."""
_FIN, _CONTROL, _MASKED = 0x80, 0x08, 0x80
_LENGTHS = {126: 2, 127: 8}


class FrameSplitter:
    """The frames of one connection."""

    def __init__(self) -> None:
        self._head = bytearray()
        """The header that is being read."""
        self._left = self._fragment_left = 0
        """Bytes of payload to come of the client's frame, and of the fragment."""
        self._fin, self._mask = 0, b""

    def split(self, data: bytes) -> bytes:
        """Return the bytes of the same messages, in frames that are no larger than FRAGMENT."""
        if len(data) <= self._fragment_left:
            self._left -= len(data)
            self._fragment_left -= len(data)
            return data + self._next_head()
        out = bytearray()
        at = 0
        while at < len(data):
            if self._fragment_left:
                piece = data[at : at + self._fragment_left]
                at += len(piece)
                self._left -= len(piece)
                self._fragment_left -= len(piece)
                out += piece + self._next_head()
            else:
                needed = self._head_size() - len(self._head)
                self._head += data[at : at + needed]
                at += needed
                if len(self._head) == self._head_size():
                    out += self._begin()
        return bytes(out)

    def _head_size(self) -> int:
        """Return the size of the header as far as it is known."""
        if len(self._head) < 2:
            return 2
        return 2 + _LENGTHS.get(self._head[1] & 0x7F, 0) + (4 if self._head[1] & _MASKED else 0)

    def _begin(self) -> bytes:
        """Return the header of a frame's first fragment, its own if it is not split."""
        head = bytes(self._head)
        self._head.clear()
        size = _LENGTHS.get(head[1] & 0x7F, 0)
        self._left = int.from_bytes(head[2 : 2 + size], "big") if size else head[1] & 0x7F
        self._fin, self._mask = head[0] & _FIN, head[2 + size :]
        if self._left <= FRAGMENT or head[0] & _CONTROL or not self._mask:
            self._fragment_left = (
                self._left
            )  # a control frame of this size or an unmasked frame is an error of the client
            return head
        self._fragment_left = FRAGMENT
        return self._fragment_head(head[0] & ~_FIN)

    def _next_head(self) -> bytes:
        """Return the header of the next fragment if the last one is complete and is not the frame's end."""
        if self._fragment_left or not self._left:
            return b""
        self._fragment_left = min(self._left, FRAGMENT)
        return self._fragment_head(self._fin if self._fragment_left == self._left else 0)

    def _fragment_head(self, first: int) -> bytes:
        size = self._fragment_left
        if size < 126:
            return bytes((first, _MASKED | size)) + self._mask
        return bytes((first, _MASKED | 126)) + size.to_bytes(2, "big") + self._mask
