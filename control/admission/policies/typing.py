"""CEL types of the kinds that a policy matches, for type-checking its expressions: built-in types and custom schemas.

A policy is evaluated on plain objects, whatever their kind, so fields have their own names here, not the escaped ones of
custom resources' rules, and a time is the string that it is in JSON. What nothing is known of, and what is one type or
another, is `dyn`: it is never warned of.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from control.cel.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of
from control.registry.served import served
from kube.api import meta_v1
from kube.resources import Resource
from kube.schema.fields import FieldType, fields

_SCALARS: dict[str, Type] = {"string": STRING, "integer": INT, "bool": BOOL, "number": DOUBLE}


def of_resource(resource: Resource) -> Type:
    """Return the type of a resource's objects."""
    if resource.custom:
        return _of_kind(served(resource).schema, resource.kind)
    return of_struct(resource.type)


@functools.cache
def of_struct(struct: type[msgspec.Struct]) -> Type:
    """Return the type of a generated struct; its fields are resolved when first looked at, for some refer to themselves."""
    return Type("object", name=struct.__name__, fields=lambda: _fields(struct))


def _fields(struct: type[msgspec.Struct]) -> dict[str, tuple[str, Type]]:
    return {field.name: (field.name, _of_type(field.type)) for field in fields(struct)}


def _of_type(type_: FieldType) -> Type:
    if type_.struct is not None:
        return of_struct(type_.struct)
    if type_.item is not None:
        return list_of(_of_type(type_.item)) if type_.kind == "list" else map_of(STRING, _of_type(type_.item))
    return _SCALARS.get(type_.kind, DYN)


def _of_kind(source: Mapping[str, Any], kind: str) -> Type:
    def fields() -> dict[str, tuple[str, Type]]:
        own = {
            name: (name, _of_schema(part, f"{kind}.{name}")) for name, part in (source.get("properties") or {}).items()
        }
        meta = {"metadata": ("metadata", of_struct(meta_v1.ObjectMeta))}
        return {**own, "apiVersion": ("apiVersion", STRING), "kind": ("kind", STRING), **meta}

    return DYN if source.get("x-kubernetes-preserve-unknown-fields") else Type("object", name=kind, fields=fields)


def _of_schema(source: Mapping[str, Any], name: str) -> Type:
    if source.get("x-kubernetes-preserve-unknown-fields") or source.get("x-kubernetes-int-or-string"):
        return DYN
    match source.get("type"):
        case "object":
            properties = source.get("properties")
            extra = source.get("additionalProperties")
            if properties:
                parts = {key: (key, _of_schema(part, f"{name}.{key}")) for key, part in properties.items()}
                return Type("object", name=name, fields=lambda: parts)
            return map_of(STRING, _of_schema(extra, f"{name}.@elem") if isinstance(extra, Mapping) else DYN)
        case "array":
            return list_of(_of_schema(source.get("items") or {}, f"{name}.@idx"))
        case "string":
            return STRING
        case "integer":
            return INT
        case "number":
            return DOUBLE
        case "boolean":
            return BOOL
    return DYN
