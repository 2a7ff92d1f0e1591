"""The fields of generated types, read once from their annotations, for whatever walks a value beside its type."""

from __future__ import annotations

import functools
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from kube import schema

Kind = Literal["struct", "list", "map", "string", "bool", "integer", "number", "quantity", "int-or-string", "any"]
_SCALARS: dict[Any, Kind] = {str: "string", bool: "bool", int: "integer", float: "number"}


@dataclass(frozen=True, slots=True)
class FieldType:
    """Type of a field: `struct` for objects, `item` for the elements of lists and the values of maps."""

    kind: Kind
    struct: type[msgspec.Struct] | None = None
    item: FieldType | None = None
    optional: bool = False
    """It may be None."""


@dataclass(frozen=True, slots=True)
class StructField:
    """A field by its wire name, with the facts that its annotation cannot say."""

    name: str
    type: FieldType
    facts: schema.FieldFacts


@functools.cache
def fields(struct: type[msgspec.Struct]) -> tuple[StructField, ...]:
    """Return a type's fields in their order."""
    facts = schema.facts(struct)
    return tuple(
        StructField(info.encode_name, _type(info.type), facts.field(info.encode_name))
        for info in msgspec.structs.fields(struct)
    )


def _type(annotation: Any) -> FieldType:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        members = [member for member in arguments if member is not types.NoneType]
        optional = len(members) < len(arguments)
        if len(members) == 1:
            found = _type(members[0])
            return FieldType(found.kind, found.struct, found.item, optional)
        return FieldType("quantity" if float in members else "int-or-string", optional=optional)
    if origin is list:
        return FieldType("list", item=_type(arguments[0]))
    if origin is dict:
        return FieldType("map", item=_type(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return FieldType("struct", annotation)
    return FieldType(_SCALARS.get(annotation, "any"))
