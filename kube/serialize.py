"""JSON bytes to typed objects and back, with Go's tolerance for null.

Go clients write null for an empty list or map, which a Struct's list does not accept. The fast path decodes the text
unchanged. Only if that fails and the text contains a null, nulls are read as Go reads them and the rest is converted.
"""

from __future__ import annotations

import functools
import re
from typing import Any, TypeVar, cast

import msgspec

from kube import null_values
from kube.nesting import cut

T = TypeVar("T")
encode = msgspec.json.encode
_SURROGATE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """Replace what is no Unicode: Python reads so the bytes of file names and headers that are no UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def encode_readable(obj: Any) -> bytes:
    """Encode as JSON what may have texts of pods, files and servers in it; `encode` raises UnicodeEncodeError for some."""
    try:
        return encode(obj)
    except UnicodeEncodeError:
        return encode(_all_readable(msgspec.to_builtins(obj)))


def _all_readable(obj: Any) -> Any:
    if isinstance(obj, str):
        return readable(obj)
    if isinstance(obj, dict):
        return {_all_readable(key): _all_readable(value) for key, value in obj.items()}
    return [_all_readable(item) for item in obj] if isinstance(obj, list) else obj


@functools.cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(data: bytes | str, type_: type[T]) -> T:
    """Decode JSON into a type; msgspec.ValidationError names the path of a wrong type, DecodeError bad JSON.

    JSON that nests too deep is decoded without its deepest levels.
    """
    try:
        return _decode(data, type_)
    except (
        RecursionError
    ):  # an object of upstream's server, which allows 10 000 levels: the others of a list are as they are
        shallow = cut(data.encode() if isinstance(data, str) else data)
    try:
        return _decode(shallow, type_)
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is malformed: exceeded max depth") from error


def _decode(data: bytes | str, type_: type[T]) -> T:
    decoder = _decoder(cast(Any, type_))
    try:
        found: T = decoder.decode(data)
        return found
    except msgspec.ValidationError:
        if (b"null" if isinstance(data, bytes) else "null") not in data:  # type: ignore[operator]
            raise
        return convert(msgspec.json.decode(data), type_)


def convert(obj: Any, type_: type[T]) -> T:
    """Turn a JSON-shaped value into a type; nulls that it does not accept are read as Go reads them."""
    try:
        return msgspec.convert(obj, type_)
    except msgspec.ValidationError:
        if type_.__module__.startswith("kube.api."):
            return msgspec.convert(null_values.without_nulls(obj, cast(Any, type_)), type_)
        return msgspec.convert(_without_nulls(obj), type_)


def to_dict(obj: msgspec.Struct) -> dict[str, Any]:
    """Return an object's JSON shape as plain dicts and lists, which the caller owns."""
    shape: dict[str, Any] = msgspec.to_builtins(obj)
    return shape


def _without_nulls(obj: Any) -> Any:
    if isinstance(obj, dict):
        return {k: _without_nulls(v) for k, v in obj.items() if v is not None}
    if isinstance(obj, list):
        return [_without_nulls(v) for v in obj if v is not None]
    return obj


def copy(obj: T) -> T:
    """Return a deep copy of a Struct that may be changed."""
    return decode(encode(obj), type(obj))
