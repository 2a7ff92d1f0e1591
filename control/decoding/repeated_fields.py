"""Values of a JSON text in which fields are repeated, as Go's decoder leaves them.

Go decodes each occurrence into the same value: structs are merged, maps get further keys, the items of a list are
decoded into the items at their index, and everything else is replaced. So each occurrence must have the field's type, not
only the last one. Fields without a type are what the last occurrence says. Upstream: sigs.k8s.io/json, decodeState.object
and array.
"""

from __future__ import annotations

from typing import Any

import msgspec

from control.decoding import canonical
from control.decoding.decode_errors import Pairs, pairs, unmarshal_error
from kube.schema.fields import ANY, FieldType, fields, of_struct

_JSON: dict[str, tuple[type, ...]] = {
    "struct": (Pairs,),
    "map": (Pairs,),
    "list": (list,),
    "string": (str,),
    "bool": (bool,),
    "integer": (int,),
    "number": (int, float),
    "quantity": (str, int, float),
    "int-or-string": (str, int),
}


def read(body: bytes, struct: type[msgspec.Struct]) -> Any:
    """Return the JSON value that Go's decoder leaves; raises ValueError with its words for the first value of a wrong type."""
    return _value(pairs(body), None, of_struct(struct), "", (), "")


def _value(value: Any, before: Any, type_: FieldType, form: str, names: tuple[str, ...], owner: str) -> Any:
    """Decode a value into what its field has `before`, which is changed."""
    if value is None:
        return None if type_.optional or type_.kind in ("any", "list", "map") else before
    if type_.kind == "any":
        return _plain(value)
    _check(value, type_, form, names, owner)
    if type_.struct is not None:
        return _struct(value, before, type_.struct, names)
    if type_.item is not None and type_.kind == "map":
        found = before if isinstance(before, dict) else {}
        found |= {key: _element(item, None, type_.item, form, names, owner) for key, item in value}
        return found
    if type_.item is not None:
        old = before if isinstance(before, list) else []
        old += [None] * (len(value) - len(old))
        item = type_.item
        return [_element(part, old[index], item, form, names, owner) for index, part in enumerate(value)]
    return value


def _element(value: Any, before: Any, type_: FieldType, form: str, names: tuple[str, ...], owner: str) -> Any:
    """Decode an item of a list or map; a null stays one, of which the conversion to the type makes the zero value."""
    return before if value is None else _value(value, before, type_, form, names, owner)


def _struct(value: Pairs, before: Any, struct: type[msgspec.Struct], names: tuple[str, ...]) -> Any:
    known = {field.name: (field.type, field.facts.format) for field in fields(struct)}
    found = before if isinstance(before, dict) else {}
    for key, item in value:
        type_, form = known.get(key, (ANY, ""))
        found[key] = _value(item, found.get(key), type_, form, (*names, key), struct.__name__)
    return found


def _check(value: Any, type_: FieldType, form: str, names: tuple[str, ...], owner: str) -> None:
    fits = isinstance(value, _JSON[type_.kind]) and (type_.kind == "bool" or not isinstance(value, bool))
    fits = fits and (type_.kind != "list" or not isinstance(value, Pairs))
    if not fits or (type_.limit and isinstance(value, int) and not -type_.limit <= value < type_.limit):
        raise ValueError(unmarshal_error(_plain(value), owner, names, type_.go))
    canonical.check(value, type_, form)


def _plain(value: Any) -> Any:
    """Return a value with dicts in place of pairs, of which the last of a key counts."""
    if isinstance(value, Pairs):
        return {key: _plain(item) for key, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value
