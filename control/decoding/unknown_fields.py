"""Finds what decoders do not report in a JSON value with its type: unknown fields, and integers beyond their range.

A number that an int32, an int64 or an IntOrString, which holds an int32, cannot hold would be stored and served: Go clients
could not decode any list with it, and in protobuf it would be another number.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kube.field_path import MOST_PROBLEMS, bounded
from kube.schema.fields import FieldType, field_types

_INT32 = 2**31
_IN_BRACKETS = re.compile(r"\[[^\]]*\]")


def inspect(obj: Any, struct: type[msgspec.Struct]) -> tuple[list[str], int, str]:
    """Walk a JSON value beside its type: (paths of some unknown fields, number of keys, a message).

    The message is that of Go's decoder for the first integer that its type cannot hold, "" if there is none.
    """
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
        known = field_types(struct)
        self.keys += len(obj)
        for key, value in obj.items():
            type_ = known.get(key)
            if type_ is None:
                if len(self.unknown) < MOST_PROBLEMS:
                    self.unknown.append(f"{path}{key}")
                self.count(value)
            elif type_.scalar:
                limit = type_.limit
                if limit and isinstance(value, int) and not -limit <= value < limit:
                    self.refuse(value, limit, struct, f"{path}{key}")
            else:
                if type_.item is not None and type_.item.limit:
                    self.integers(value, type_.item.limit, struct, f"{path}{key}")
                self.value(value, type_, f"{path}{key}")

    def integers(self, values: Any, limit: int, struct: type[msgspec.Struct], path: str) -> None:
        """Check the integers of a list or map."""
        for value in values.values() if isinstance(values, dict) else values or ():
            if isinstance(value, int) and not -limit <= value < limit:
                self.refuse(value, limit, struct, path)

    def refuse(self, value: int, limit: int, struct: type[msgspec.Struct], path: str) -> None:
        if not self.overflow:
            where = f"{struct.__name__}.{_IN_BRACKETS.sub('', path)}"  # Go's path has no indices and no keys of maps
            type_ = "int32" if limit == _INT32 else "int64"
            self.overflow = f"json: cannot unmarshal number {value} into Go struct field {where} of type {type_}"

    def value(self, value: Any, type_: FieldType, path: str) -> None:
        if type_.struct is not None:
            self.struct(value, type_.struct, path + ".")
        elif type_.kind == "list" and isinstance(value, list):
            assert type_.item is not None
            if not type_.item.scalar:
                for index, item in enumerate(value):
                    self.value(item, type_.item, f"{path}[{index}]")
        elif type_.kind == "map" and isinstance(value, dict):
            assert type_.item is not None
            if type_.item.scalar:
                self.keys += len(value)
            elif type_.item.kind == "any" and type_.item.either is None:
                self.count(value)
            else:
                self.keys += len(value)
                for key, item in value.items():
                    self.value(item, type_.item, bounded(f"{path}[{key}]"))
        elif type_.either is not None:
            self.either(value, type_.either, path)
        else:
            self.count(value)

    def either(self, value: Any, struct: type[msgspec.Struct], path: str) -> None:
        """Walk objects of a type that are alone, in a list or absent; Go reports no unknown fields in them."""
        for each in value if isinstance(value, list) else (value,):
            inner = _Walk()
            inner.struct(each, struct, path + ".")
            self.keys += inner.keys
            self.overflow = self.overflow or inner.overflow

    def count(self, value: Any) -> None:
        if isinstance(value, dict):
            self.keys += len(value)
            for item in value.values():
                self.count(item)
        elif isinstance(value, list):
            for item in value:
                self.count(item)
