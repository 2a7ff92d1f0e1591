"""Partial decoding of an object's JSON.

Skipping a value costs about a fifteenth of decoding it. Selectors compare names, labels and a few fields, which an object of a
megabyte has in its first or last hundred bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from control.storage import codec

LAZY_BYTES = 4096
"""Bytes of JSON below which a value is decoded as a whole, which is as fast as partial decoding."""


class PartialMetadata(msgspec.Struct, frozen=True):
    """The metadata that selectors compare."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _WithMetadata(msgspec.Struct):
    metadata: PartialMetadata | None = None


_metadata_decoder = msgspec.json.Decoder(_WithMetadata)
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder()


def partial_metadata(data: bytes) -> PartialMetadata:
    """Return an object's name, namespace and labels."""
    try:
        return _metadata_decoder.decode(data).metadata or PartialMetadata()
    except msgspec.ValidationError:  # values of other types, which other servers may have stored
        return metadata_of(codec.decode(data))


def metadata_of(obj: dict[str, Any]) -> PartialMetadata:
    """Return a decoded object's name, namespace and labels."""
    metadata = obj.get("metadata") or {}
    return PartialMetadata(metadata.get("name", ""), metadata.get("namespace", ""), metadata.get("labels"))


def label_reader(label: str) -> Callable[[bytes], str]:
    """Return a function that decodes one label of an object ("" if it has none) and skips the others."""
    labels = msgspec.defstruct("_Labels", [("value", str, msgspec.field(default="", name=label))])
    metadata = msgspec.defstruct("_Metadata", [("labels", labels | None, None)])
    decoder = msgspec.json.Decoder(msgspec.defstruct("_Labelled", [("metadata", metadata | None, None)]))

    def read(data: bytes) -> str:
        try:
            found: Any = decoder.decode(data)
        except msgspec.ValidationError:  # values of other types, which other servers may have stored
            found = metadata_of(codec.decode(data)).labels
            return str(found.get(label) or "") if isinstance(found, dict) else ""
        return str(found.metadata.labels.value) if found.metadata and found.metadata.labels else ""

    return read


def lazy_dict(data: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return a dict whose values are decoded on access by name (`[]`, `get`); iteration returns undecoded ones."""
    return _LazyDict(_raw.decode(data))


class _LazyDict(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if type(value) is msgspec.Raw:
            value = self[key] = _value(value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default


def _value(raw: msgspec.Raw) -> Any:
    with memoryview(raw) as text:
        large = len(text) >= LAZY_BYTES and text[0] == ord("{")
    return lazy_dict(raw) if large else _any.decode(raw)
