"""Weight of a body: the work that it causes; many small values cause as much as large ones.

A weight is in bytes. What is done with a value of two bytes (decoding it into its type, defaults, validation, an error) takes
10 to 15 µs, as with one of a hundred.
"""

from __future__ import annotations

from kube.schema import wire
from kube.value_count import marks

LARGE = 32 * 1024
"""Weight of an object from which on work on it is done by the thread; to go there and back costs 0.1 ms."""
VALUE = 64
"""What a value weighs at least: work on 512 of them takes 5 to 10 ms."""
_YAML_MARKS = (b":", b"-", b",", b"[", b"{", b"?")


def weight(data: bytes, content_type: str = "") -> int:
    """Return how many bytes of ordinary objects make as much work as these of JSON, YAML or protobuf."""
    size = len(data)
    return size if size >= LARGE else max(size, VALUE * _values(data, content_type))


def _values(data: bytes, content_type: str) -> int:
    """Return about how many values there are, rather too many than too few."""
    kind = content_type.lower()
    if "yaml" in kind:
        return sum(data.count(mark) for mark in _YAML_MARKS)
    if data.startswith(wire.MAGIC):
        return data.count(b"\0") + len(data) // 8  # an empty message is a tag and a zero
    return marks(data)
