"""Stored objects into their protobuf form, also those with values that have none.

An object that an older version stored may have a value that no body may have today: a time that is on no calendar, a number
where a text belongs. A client that lists or watches its kind asked for all the others too, so such an object does
not fail the response. Of its fields those that cannot be encoded are left out, as if they were not set, and so are such items
of lists and such entries of maps; integers beyond their type are the nearest ones (`wire_encode`). In JSON and YAML the object
is as it is stored.
"""

from __future__ import annotations

import functools
from typing import Any

from kube.json_object import Object
from kube.schema.wire import WireError, types
from kube.schema.wire_encode import encodable, encode, has_own_form


def encode_stored(obj: Object, module: str, name: str) -> bytes:
    """Return a stored object as a message of a type; raises WireError if the type has no protobuf form."""
    try:
        return encode(obj, module, name)
    except WireError:
        if f"{module}.{name}" not in types():
            raise
        return encode(_without_odd_values(obj, f"{module}.{name}"), module, name)


def _without_odd_values(obj: Any, type_name: str) -> Object:
    kinds, found = _kinds(type_name), Object()
    for key, value in obj.items() if isinstance(obj, dict) else ():
        kind = kinds.get(key)
        if kind is not None and value is not None:
            part = _encodable_part(value, kind)
            if part is not None:
                found[key] = part
    return found


def _encodable_part(value: Any, kind: str) -> Any:
    """Return what of a value can be encoded, None for nothing."""
    if kind[0] == "*" and isinstance(value, list):
        return [part for each in value if (part := _encodable_part(each, kind[1:])) is not None]
    if kind[0] == "%" and isinstance(value, dict):
        parts = {key: _encodable_part(each, kind[1:]) for key, each in value.items() if encodable(key, "s")}
        return {key: part for key, part in parts.items() if part is not None}
    if kind in types() and not has_own_form(kind):
        return _without_odd_values(value, kind) if isinstance(value, dict) else None
    return value if encodable(value, kind) else None


@functools.cache
def _kinds(type_name: str) -> dict[str, str]:
    """Return the kinds of a type's fields by JSON name, with those that JSON shows of embedded messages."""
    direct, inner = dict[str, str](), dict[str, str]()
    for field, kind in types()[type_name].values():
        if kind[0] == "&":
            inner |= _kinds(kind[1:])
        else:
            direct[field] = kind
    return inner | direct
