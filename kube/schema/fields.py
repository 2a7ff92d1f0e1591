"""Fields and types of generated Structs, read once from their annotations, for modules that walk a value with its type."""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from kube import schema

Kind = Literal["struct", "list", "map", "string", "bool", "integer", "number", "quantity", "int-or-string", "any"]
_SCALARS: dict[Any, tuple[Kind, str]] = {
    str: ("string", "string"),
    bool: ("bool", "bool"),
    int: ("integer", "int64"),
    float: ("number", "float64"),
}


class FieldType(msgspec.Struct, frozen=True):
    """Type of a field: `struct` for objects, `item` for the elements of lists and the values of maps."""

    kind: Kind
    go: str
    """The type's name in Go, for messages."""
    struct: type[msgspec.Struct] | None = None
    item: FieldType | None = None
    optional: bool = False
    """It may be None."""
    scalar: bool = False
    """Its JSON form is a string, number or boolean."""
    limit: int = 0
    """Integers of it are at least -limit and less than limit; 0: it has none."""
    either: type[msgspec.Struct] | None = None
    """Of "any": its objects are of this type, alone or in a list; other values are scalars (JSON schemas)."""


_LIMITS = {"int32": 2**31, "int64": 2**63}
ANY = FieldType("any", "interface {}")


class StructField(msgspec.Struct, frozen=True):
    """A field by its wire name, with the facts that its annotation cannot express."""

    name: str
    type: FieldType
    facts: schema.FieldFacts


@functools.cache
def fields(struct: type[msgspec.Struct]) -> tuple[StructField, ...]:
    """Return a type's fields in their order."""
    facts = schema.facts(struct)
    found = ((info.encode_name, info.type) for info in msgspec.structs.fields(struct))
    return tuple(StructField(name, _type(type_, facts.field(name).format), facts.field(name)) for name, type_ in found)


@functools.cache
def field_types(struct: type[msgspec.Struct]) -> dict[str, FieldType]:
    """Return the types of a type's fields by wire name."""
    return {field.name: field.type for field in fields(struct)}


def of_struct(struct: type[msgspec.Struct]) -> FieldType:
    """Return the type of a field that contains a generated type."""
    version = struct.__module__.rpartition("_")[2]
    return FieldType("struct", f"{version}.{struct.__name__}", struct)


def _type(annotation: Any, format: str = "") -> FieldType:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        members = [member for member in arguments if member is not types.NoneType]
        optional = len(members) < len(arguments)
        if len(members) == 1:
            return replace(_type(members[0], format), optional=optional)
        structs = [member for member in members if isinstance(member, type) and issubclass(member, msgspec.Struct)]
        if structs:
            return replace(ANY, optional=optional, either=structs[0])
        if float in members:
            return FieldType("quantity", "resource.Quantity", optional=optional, scalar=True)
        return FieldType("int-or-string", "intstr.IntOrString", optional=optional, scalar=True, limit=_LIMITS["int32"])
    if origin is list:
        item = _type(arguments[0], format)
        return FieldType("list", f"[]{item.go}", item=item)
    if origin is dict:
        item = _type(arguments[1], format)
        return FieldType("map", f"map[string]{item.go}", item=item)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return of_struct(annotation)
    if annotation not in _SCALARS:
        return ANY
    kind, go = _SCALARS[annotation]
    if kind == "integer" and format in _LIMITS:
        go = format
    return FieldType(kind, go, scalar=True, limit=_LIMITS.get(go, 0))
