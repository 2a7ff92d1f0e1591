"""Parts of an object's JSON, read without making anything of the rest.

To pass over a value costs about a fifteenth of decoding it. Selectors compare names, labels and a few fields; an object of a
megabyte has them in its first or last hundred bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from control.storage import codec

WHOLE = 4096
"""Bytes of JSON below which a value is decoded as a whole, which takes no longer than to find its parts."""


class Head(msgspec.Struct, frozen=True):
    """The metadata that selectors ask for."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Headed(msgspec.Struct):
    metadata: Head | None = None


_heads = msgspec.json.Decoder(_Headed)
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder()


def head(data: bytes) -> Head:
    """Return an object's name, namespace and labels."""
    try:
        return _heads.decode(data).metadata or Head()
    except msgspec.ValidationError:  # values of other types, which other servers may have stored
        return head_of(codec.decode(data))


def head_of(obj: dict[str, Any]) -> Head:
    """Return a decoded object's name, namespace and labels."""
    metadata = obj.get("metadata") or {}
    return Head(metadata.get("name", ""), metadata.get("namespace", ""), metadata.get("labels"))


def label_reader(label: str) -> Callable[[bytes], str]:
    """Return what reads one label of an object ("": it has none) and makes nothing of the others."""
    labels = msgspec.defstruct("_Labels", [("value", str, msgspec.field(default="", name=label))])
    metadata = msgspec.defstruct("_Metadata", [("labels", labels | None, None)])
    decoder = msgspec.json.Decoder(msgspec.defstruct("_Labelled", [("metadata", metadata | None, None)]))

    def read(data: bytes) -> str:
        try:
            found: Any = decoder.decode(data)
        except msgspec.ValidationError:  # values of other types, which other servers may have stored
            found = head_of(codec.decode(data)).labels
            return str(found.get(label) or "") if isinstance(found, dict) else ""
        return str(found.metadata.labels.value) if found.metadata and found.metadata.labels else ""

    return read


def lazily(data: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return an object whose values are decoded when they are asked for by name (`[]`, `get`); others stay undecoded."""
    return _Lazy(_raw.decode(data))


class _Lazy(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if type(value) is msgspec.Raw:
            value = self[key] = _value(value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default


def _value(raw: msgspec.Raw) -> Any:
    with memoryview(raw) as text:
        large = len(text) >= WHOLE and text[0] == ord("{")
    return lazily(raw) if large else _any.decode(raw)
