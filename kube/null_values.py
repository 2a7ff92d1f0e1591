"""JSON null as Go's decoder reads it: a field is absent, an element of a list or map has its type's zero value.

A selector `{app: null}` requires the label `app` with an empty value; without the element it would select everything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kube.schema.fields import FieldType, field_types

_ZERO: dict[str, Any] = {"string": "", "bool": False, "integer": 0, "number": 0, "quantity": "0", "int-or-string": 0}


def without_nulls(obj: Any, struct: type[msgspec.Struct]) -> Any:
    """Return a copy of a JSON value of a generated type without nulls that the type does not accept.

    Values of the wrong type, and what the type does not know, are left as they are.
    """
    if not isinstance(obj, dict):
        return obj
    known = field_types(struct)
    return {
        name: _value(value, known[name]) if name in known else value for name, value in obj.items() if value is not None
    }


def _value(value: Any, type_: FieldType) -> Any:
    if type_.item is not None and isinstance(value, list):
        return [_element(item, type_.item) for item in value]
    if type_.item is not None and isinstance(value, dict):
        return {key: _element(item, type_.item) for key, item in value.items()}
    if type_.struct is not None:
        return without_nulls(value, type_.struct)
    if type_.either is not None:
        if isinstance(value, list):
            return [without_nulls(item, type_.either) for item in value]
        return without_nulls(value, type_.either)
    return value


def _element(value: Any, type_: FieldType) -> Any:
    if value is not None or type_.optional or type_.kind == "any":
        return _value(value, type_)
    return {} if type_.struct is not None or type_.kind == "map" else [] if type_.kind == "list" else _ZERO[type_.kind]
