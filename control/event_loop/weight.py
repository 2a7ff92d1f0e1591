"""Weight of a body: an estimate of the work that it causes, in bytes.

Many small values cause as much work as large ones: processing a value of two bytes (decoding it into its type, defaults,
validation, an error) takes 10 to 15 µs, as for one of a hundred bytes.
"""

from __future__ import annotations

from kube.schema import wire
from kube.value_count import marks

LARGE = 32 * 1024
"""Weight of an object from which on work on it is done by the thread; to go there and back costs 0.1 ms."""
VALUE = 64
"""Minimum weight of a value: work on 512 of them takes 5 to 10 ms."""
_JSON = ("", "application/json")
_YAML_MARKS = (b":", b"-", b",", b"[", b"{", b"?")


def weight(data: bytes, content_type: str = "") -> int:
    """Return how many bytes of ordinary objects make as much work as these of JSON, YAML or protobuf."""
    size = len(data)
    if size >= LARGE:
        return size
    # JSON first and without another call: each write weighs its body, the stored object and the result.
    plain = data[:1] == b"{" and content_type in _JSON
    values = data.count(b",") + data.count(b"{") + data.count(b"[") if plain else _values(data, content_type)
    return max(size, VALUE * values)


def _values(data: bytes, content_type: str) -> int:
    """Return about how many values there are, rather too many than too few."""
    kind = content_type.lower()
    if "yaml" in kind:
        return sum(data.count(mark) for mark in _YAML_MARKS)
    if data.startswith(wire.MAGIC):
        return data.count(b"\0") + len(data) // 8  # an empty message is a tag and a zero
    return marks(data)
