"""Objects into their protobuf form, by the same field numbers that `wire` reads.

An encoder is compiled once a type: a dict from the JSON name to what writes that field, so that an object costs what it holds
and not what its type could. What JSON shows flat and Go embeds (a volume's source) is gathered and written as the
embedded message. Fields without a known number are left out (`without_number` names them): upstream's newest alpha fields.
"""

from __future__ import annotations

import base64
import functools
import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from kube.json_object import Object
from kube.schema.wire import MAGIC, WireError, types

Write = Callable[[Any], bytes]

_END = b"\x1a\x00\x22\x00"
"""contentEncoding and contentType of the envelope, which Go writes although they are empty."""
_SMALL = [bytes((n,)) for n in range(128)]
_MASK = (1 << 64) - 1
_MOST, _MOST_INT32 = 2**63 - 1, 2**31 - 1
_ERRORS = (TypeError, ValueError, AttributeError, OverflowError, struct.error, RecursionError)
"""Raised for values of a wrong type or form."""


def envelope(api_version: str, kind: str, framed: bytes) -> bytes:
    """Return a whole answer around a message that `framed` has made."""
    return b"%b%b%b" % (_head(api_version, kind), framed, _END)


def framed(message: bytes) -> bytes:
    """Return a message as field 2: what an envelope holds, and what a list's items are."""
    return b"\x12%b%b" % (varint(len(message)), message)


def encode(obj: Object, module: str, name: str) -> bytes:
    """Return an object in JSON's shape as a message of a type (module "core_v1", name "Pod"); raises WireError."""
    type_name = f"{module}.{name}"
    if type_name not in types():
        raise WireError(f"{name} has no protobuf form")
    try:
        return _encoder(type_name)(obj)
    except _ERRORS as error:
        raise WireError(f"{name}: {error}") from error


def encodable(value: Any, kind: str) -> bool:
    """Return whether a value is one of a field's kind (as in wire.json)."""
    try:
        _writer(1, kind)(value)
    except _ERRORS:
        return False
    return True


def has_own_form(kind: str) -> bool:
    """Return whether a type's JSON form is not an object of its fields (times, quantities, schemas)."""
    return kind in _SPECIAL


def around_list(api_version: str, kind: str, metadata: Object, size: int) -> tuple[bytes, bytes]:
    """Return what stands before and behind the items of a list, which are framed and have `size` bytes together."""
    meta = _encoder("meta_v1.ListMeta")(metadata)
    head = b"\x0a%b%b" % (varint(len(meta)), meta)
    return b"".join((_head(api_version, kind), b"\x12", varint(len(head) + size), head)), _END


def watch_frame(kind: str, enveloped: bytes) -> bytes:
    """Return one event of a watch: four bytes of length, then a WatchEvent that holds the enveloped object."""
    text = kind.encode()
    raw = b"\x0a%b%b" % (varint(len(enveloped)), enveloped)
    event = b"\x0a%b%b\x12%b%b" % (_SMALL[len(text)], text, varint(len(raw)), raw)
    return struct.pack(">I", len(event)) + event


def without_number(struct_type: type[msgspec.Struct]) -> set[str]:
    """Return the fields of a generated type, by JSON name, that the wire form cannot carry."""
    type_name = f"{struct_type.__module__.rpartition('.')[2]}.{struct_type.__name__}"
    if type_name in _SPECIAL:
        return set()
    known = set(_steps(type_name)) if type_name in types() else set()
    return {f.encode_name for f in msgspec.structs.fields(struct_type)} - known - {"apiVersion", "kind"}


@functools.lru_cache(maxsize=256)
def _head(api_version: str, kind: str) -> bytes:
    version, name = api_version.encode(), kind.encode()
    meta = b"\x0a%b%b\x12%b%b" % (varint(len(version)), version, varint(len(name)), name)
    return MAGIC + b"\x0a" + varint(len(meta)) + meta


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it; of one beyond an int64 the nearest that is one."""
    if 0 <= value < 128:
        return _SMALL[value]
    if not 0 <= value <= _MOST:
        value = min(max(value, -_MOST - 1), _MOST) & _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# -- compiling ------------------------------------------------------------------------------------------------------------
Step = tuple[Write | None, str]
"""Encoder of a field; or None and the field of the embedded message that collects it."""


@functools.cache
def _steps(type_name: str) -> dict[str, Step]:
    direct: dict[str, Step] = {}
    gathered: dict[str, Step] = {}
    for number, (field, kind) in types()[type_name].items():
        if kind[0] == "&":
            gathered |= {key: (None, f"{number} {kind[1:]}") for key in _steps(kind[1:])}
        else:
            direct[field] = (_writer(number, kind), "")
    return gathered | direct


@functools.cache
def _encoder(type_name: str) -> Write:
    special = _SPECIAL.get(type_name)
    if special is not None:
        return special
    if type_name not in types():
        return lambda obj: b""
    steps = _steps(type_name)

    def encode_message(obj: Object) -> bytes:
        parts: list[bytes] = []
        inner: dict[str, Object] | None = None
        for key, value in obj.items():
            if value is None or (step := steps.get(key)) is None:
                continue
            write, place = step
            if write is not None:
                parts.append(write(value))
            else:
                if inner is None:
                    inner = {}
                inner.setdefault(place, {})[key] = value
        if inner is not None:
            for place, part in inner.items():
                number, kind = place.split(" ")
                parts.append(_message(_tag(int(number), 2), kind)(part))
        return b"".join(parts)

    return encode_message


def _tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def _writer(number: int, kind: str) -> Write:
    if kind[0] == "*":
        one = _writer(number, kind[1:])
        return lambda values: b"".join([one(value) for value in values])
    if kind[0] == "%":
        return _map(_tag(number, 2), _writer(2, kind[1:]))
    if kind in ("i", "t"):
        return _integer(_tag(number, 0))
    if kind == "d":
        tag = _tag(number, 1)
        return lambda value: tag + struct.pack("<d", value)
    tag = _tag(number, 2)
    if kind == "s":
        return _string(tag)
    if kind == "b":
        return _bytes(tag)
    return _message(tag, kind)


def _integer(tag: bytes) -> Write:
    return lambda value: tag + varint(int(value))


def _string(tag: bytes) -> Write:
    def write(value: str) -> bytes:
        text = value.encode()
        size = len(text)
        return b"%b%b%b" % (tag, _SMALL[size] if size < 128 else varint(size), text)

    return write


def _bytes(tag: bytes) -> Write:
    def write(value: str) -> bytes:
        data = base64.b64decode(value)
        return b"%b%b%b" % (tag, varint(len(data)), data)

    return write


def _message(tag: bytes, kind: str) -> Write:
    made: Write | None = None

    def write(value: Any) -> bytes:
        nonlocal made
        if made is None:
            made = _encoder(kind)  # not before: types may hold themselves
        data = made(value)
        size = len(data)
        return b"%b%b%b" % (tag, _SMALL[size] if size < 128 else varint(size), data)

    return write


def _map(tag: bytes, write_value: Write) -> Write:
    key_writer = _string(b"\x0a")

    def write(values: dict[str, Any]) -> bytes:
        parts = []
        for key in sorted(values):
            entry = key_writer(key) + write_value(values[key])
            parts.append(b"%b%b%b" % (tag, varint(len(entry)), entry))
        return b"".join(parts)

    return write


# -- types with a form of their own ---------------------------------------------------------------------------------------
_field1, _field2, _field3 = _string(b"\x0a"), _string(b"\x12"), _string(b"\x1a")


@functools.lru_cache(maxsize=4096)
def _time(text: str) -> bytes:
    if not text:
        return b""
    return b"\x08" + varint(int(datetime.fromisoformat(text).timestamp()))


def _micro_time(text: str) -> bytes:
    if not text:
        return b""
    moment = datetime.fromisoformat(text)
    return b"\x08%b\x10%b" % (varint(int(moment.replace(microsecond=0).timestamp())), varint(moment.microsecond * 1000))


def _int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + _field3(value)
    if not -_MOST_INT32 <= value <= _MOST_INT32:
        value = min(max(value, -_MOST_INT32 - 1), _MOST_INT32)
    return b"\x08\x00\x10%b\x1a\x00" % varint(value)


def _quantity(value: Any) -> bytes:
    return _field1(str(value))


def _raw(value: Any) -> bytes:
    data = msgspec.json.encode(value)
    return b"\x0a%b%b" % (varint(len(data)), data)


def _items(values: list[str]) -> bytes:
    return b"".join([_field1(value) for value in values])


_SCHEMA = "apiextensions_v1.JSONSchemaProps"


def _schema_or_array(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join([_message(b"\x12", _SCHEMA)(one) for one in value])
    return _message(b"\x0a", _SCHEMA)(value) if isinstance(value, dict) else b""


def _schema_or_bool(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x08\x01" if value else b"\x08\x00"
    return b"\x08\x01" + (_message(b"\x12", _SCHEMA)(value) if isinstance(value, dict) else b"")


def _schema_or_strings(value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join([_field2(one) for one in value])
    return _message(b"\x0a", _SCHEMA)(value) if isinstance(value, dict) else b""


_SPECIAL: dict[str, Write] = {
    "meta_v1.Time": _time,
    "meta_v1.MicroTime": _micro_time,
    "meta_v1.FieldsV1": _raw,
    "meta_v1.Verbs": _items,
    "pkg_runtime.RawExtension": _raw,
    "util_intstr.IntOrString": _int_or_string,
    "api_resource.Quantity": _quantity,
    "authentication_v1.ExtraValue": _items,
    "authorization_v1.ExtraValue": _items,
    "certificates_v1.ExtraValue": _items,
    "apiextensions_v1.JSON": _raw,
    "apiextensions_v1.JSONSchemaPropsOrArray": _schema_or_array,
    "apiextensions_v1.JSONSchemaPropsOrBool": _schema_or_bool,
    "apiextensions_v1.JSONSchemaPropsOrStringArray": _schema_or_strings,
}
