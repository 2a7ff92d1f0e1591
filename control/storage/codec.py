"""Stored values: an object's JSON with its resourceVersion at a fixed position, where it is inserted without decoding.

The revision of a write is not known before it is stored, so it is inserted whenever the object is read. `encode` therefore
puts `kind`, `apiVersion` and `metadata` first, and `resourceVersion` first in metadata, where `with_revision` replaces
the digits between two quotes: a regular expression on the first bytes and one copy. Values written by others (an upstream
API server with JSON storage on the same etcd) have another order. They are decoded, converted (upstream_objects.py) and
encoded. Objects that nest deeper than objects may today, as earlier versions and other servers store them, are read without
their deepest levels, so that they do not disturb lists and watches of their kind.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from control.storage.upstream_objects import convert_upstream
from kube.nesting import cut, is_deep

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_HEAD = re.compile(rb'\{"kind":%b,"apiVersion":%b,"metadata":\{"resourceVersion":"(\d*)"' % (_TEXT, _TEXT))
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(obj: dict[str, Any]) -> bytes:
    """Return the bytes to store for an object, without its resourceVersion."""
    metadata = {"resourceVersion": "", **(obj.get("metadata") or {})}
    metadata["resourceVersion"] = ""
    ordered = {"kind": obj.get("kind", ""), "apiVersion": obj.get("apiVersion", ""), "metadata": metadata}
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    return _encoder.encode(ordered)


def head(kind: str, api_version: str) -> bytes:
    """Return the bytes of a kind's stored values up to the resourceVersion, which is empty there."""
    return encode({"kind": kind, "apiVersion": api_version}).removesuffix(b'"}}')


def decode(value: bytes) -> dict[str, Any]:
    """Return an object as a new dict; raises msgspec.DecodeError if the value is not a JSON object."""
    try:
        obj = _decoder.decode(value)
    except RecursionError:
        obj = _decoder.decode(cut(value))
    if not isinstance(obj, dict):
        raise msgspec.DecodeError(f"a stored value must be a JSON object, not {type(obj).__name__}")
    return obj


def shallow(value: bytes) -> bytes:
    """Return a value from the store without the levels that are deeper than what may be stored."""
    return cut(value) if is_deep(value) else value


def with_revision(value: bytes, revision: int) -> bytes:
    """Return the object's bytes with metadata.resourceVersion set to a revision."""
    head = _HEAD.match(value)
    if head is None:
        head = _HEAD.match(value := encode(convert_upstream(decode(value))))
        assert head is not None
    start, end = head.span(1)
    return b"%b%d%b" % (value[:start], revision, value[end:])
