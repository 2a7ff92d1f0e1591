"""Fields of built-in kinds, by their paths in JSON."""

from __future__ import annotations

import importlib
import types
import typing
from collections.abc import Sequence
from typing import Any

import msgspec

from kube import resources


def unknown_part(api_version: str, kind: str, path: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the first part of a path that objects of a kind cannot have, and the fields that there are; None if all is known.

    Custom resources, and fields that are JSON or maps, may have any.
    """
    resource = resources.by_kind(api_version, kind)
    if resource is None:
        return None
    type: Any = getattr(importlib.import_module(f"kube.api.{resource.module}"), kind)
    for part in path:
        type = _without_none(type)
        origin = typing.get_origin(type)
        if origin is list:
            type = typing.get_args(type)[0]
            if not part.isdigit():
                return part, ["0", "1", "..."]
        elif isinstance(type, msgspec.StructMeta):
            fields = dict(zip(type.__struct_encode_fields__, type.__struct_fields__, strict=True))
            if part not in fields and part not in ("apiVersion", "kind"):
                return part, sorted(fields)
            type = typing.get_type_hints(type)[fields[part]] if part in fields else str
        else:
            return None
    return None


def _without_none(type: Any) -> Any:
    if typing.get_origin(type) in (typing.Union, types.UnionType):
        chosen = [each for each in typing.get_args(type) if each is not types.NoneType]
        return chosen[0] if len(chosen) == 1 else object
    return type
