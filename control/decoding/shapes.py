"""The generated types seen from the wire: which field names an object may have, and what Go calls their types.

Built from the Structs once a type, lazily. Used where a decoder only says that something is wrong: to find fields that no type
knows, numbers too large for an int32, and to word a wrong type as upstream's decoder does.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import msgspec

from kube.field_path import MOST_PROBLEMS, bounded
from kube.schema.fields import FieldType
from kube.schema.fields import fields as type_fields

INT32 = 2**31


@dataclass(frozen=True, slots=True)
class Shape:
    """A value's place: `struct` for objects, `item` for the elements of lists and maps, `go` the Go type's name."""

    kind: str
    """struct, list, map, scalar or any"""
    go: str
    struct: type[msgspec.Struct] | None = None
    item: Shape | None = None


ANY = Shape("any", "interface {}")


@functools.cache
def fields(struct: type[msgspec.Struct]) -> dict[str, Shape]:
    """Return an object type's fields by wire name."""
    return {field.name: _shape(field.type, field.facts.format) for field in type_fields(struct)}


def of(struct: type[msgspec.Struct]) -> Shape:
    """Return the place that holds an object of a type."""
    return Shape("struct", _go_name(struct), struct)


def _go_name(struct: type[msgspec.Struct]) -> str:
    version = struct.__module__.rpartition("_")[2]
    return f"{version}.{struct.__name__}"


_GO = {
    "string": "string",
    "bool": "bool",
    "integer": "int64",
    "number": "float64",
    "quantity": "resource.Quantity",
    "int-or-string": "intstr.IntOrString",
}


def _shape(type_: FieldType, fmt: str = "") -> Shape:
    if type_.struct is not None:
        return of(type_.struct)
    if type_.item is not None:
        item = _shape(type_.item)
        return Shape(type_.kind, ("[]" if type_.kind == "list" else "map[string]") + item.go, item=item)
    if type_.kind == "any":
        return ANY
    kind = "any" if type_.kind in ("quantity", "int-or-string") else "scalar"
    return Shape(kind, fmt if type_.kind == "integer" and fmt in ("int32", "int64") else _GO[type_.kind])


def inspect(obj: Any, struct: type[msgspec.Struct]) -> tuple[list[str], int, str]:
    """Walk a JSON value beside its type: (paths of some unknown fields, number of keys, a message for an int32 overflow)."""
    walk = _Walk()
    walk.struct(obj, struct, "")
    return walk.unknown, walk.keys, walk.overflow


class _Walk:
    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.keys = 0
        self.overflow = ""

    def struct(self, obj: Any, struct: type[msgspec.Struct], path: str) -> None:
        if not isinstance(obj, dict):
            return
        known = fields(struct)
        self.keys += len(obj)
        for key, value in obj.items():
            shape = known.get(key)
            if shape is None:
                if len(self.unknown) < MOST_PROBLEMS:
                    self.unknown.append(f"{path}{key}")
                self.count(value)
            elif shape.kind == "scalar":
                if shape.go == "int32" and isinstance(value, int) and not -INT32 <= value < INT32:
                    where = f"{struct.__name__}.{path}{key}"
                    self.overflow = f"json: cannot unmarshal number {value} into Go struct field {where} of type int32"
            else:
                self.value(value, shape, f"{path}{key}")

    def value(self, value: Any, shape: Shape, path: str) -> None:
        if shape.struct is not None:
            self.struct(value, shape.struct, path + ".")
        elif shape.kind == "list" and isinstance(value, list):
            assert shape.item is not None
            if shape.item.kind != "scalar":
                for index, item in enumerate(value):
                    self.value(item, shape.item, f"{path}[{index}]")
        elif shape.kind == "map" and isinstance(value, dict):
            assert shape.item is not None
            if shape.item.kind == "scalar":
                self.keys += len(value)
            elif shape.item.kind == "any":
                self.count(value)
            else:
                self.keys += len(value)
                for key, item in value.items():
                    self.value(item, shape.item, bounded(f"{path}[{key}]"))
        else:
            self.count(value)

    def count(self, value: Any) -> None:
        if isinstance(value, dict):
            self.keys += len(value)
            for item in value.values():
                self.count(item)
        elif isinstance(value, list):
            for item in value:
                self.count(item)
