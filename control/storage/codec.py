"""Stored values: an object's JSON, laid out so that its resourceVersion can be written in without decoding.

An object does not know its own revision when it is stored; the revision is added whenever it is read. `encode` therefore
puts `kind`, `apiVersion` and `metadata` first, and `resourceVersion` first in metadata, where `with_revision` replaces
the digits between two quotes: a regular expression on the first bytes and one copy. Values that others wrote (an
upstream API server with JSON storage on the same etcd) have another order and take the slow way, decode and encode, and become
what this server would have stored (foreign.py).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from control.storage.foreign import as_stored_here

_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_HEAD = re.compile(rb'\{"kind":%b,"apiVersion":%b,"metadata":\{"resourceVersion":"(\d*)"' % (_TEXT, _TEXT))
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(obj: dict[str, Any]) -> bytes:
    """Return the bytes to store for an object; whatever resourceVersion it carries is left out."""
    metadata = {"resourceVersion": "", **(obj.get("metadata") or {})}
    metadata["resourceVersion"] = ""
    ordered = {"kind": obj.get("kind", ""), "apiVersion": obj.get("apiVersion", ""), "metadata": metadata}
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    return _encoder.encode(ordered)


def decode(value: bytes) -> dict[str, Any]:
    """Return an object as a new dict; raises msgspec.DecodeError for what is not a JSON object."""
    obj = _decoder.decode(value)
    if not isinstance(obj, dict):
        raise msgspec.DecodeError(f"a stored value must be a JSON object, not {type(obj).__name__}")
    return obj


def with_revision(value: bytes, revision: int) -> bytes:
    """Return the object's bytes with metadata.resourceVersion set to a revision."""
    head = _HEAD.match(value)
    if head is None:
        head = _HEAD.match(value := encode(as_stored_here(decode(value))))
        assert head is not None
    start, end = head.span(1)
    return b"%b%d%b" % (value[:start], revision, value[end:])
