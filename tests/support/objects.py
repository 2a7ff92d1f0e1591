"""Objects of any generated type, made at random and again from the same seed, with no value that means nothing.

Protobuf does not tell a plain field's zero from its absence, so scalars are never zero, empty or false; what has a text form of
its own (times, quantities, base64) is well-formed; fields of any type hold what their place in the API can hold.
"""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from control.decoding import canonical
from kube import schema, serialize

DEEPEST = 7
SCHEMAS = ("items", "additional_properties", "additional_items")


class Maker:
    """`skip` says which fields (by type and wire name) are left out."""

    def __init__(self, seed: int, skip: Callable[[type[msgspec.Struct]], set[str]] = lambda struct: set()) -> None:
        self.random, self.skip = random.Random(seed), skip

    def struct(self, kind: type[msgspec.Struct], depth: int = 0) -> Any:
        left_out, facts, values = self.skip(kind), schema.facts(kind), {}
        for field in msgspec.structs.fields(kind):
            names_type = field.name in ("api_version", "kind") and "metadata" in kind.__struct_fields__
            if field.encode_name in left_out or names_type:
                continue
            if _plain(field.type) or self.random.random() < (0.85 if depth < 3 else 0.3 if depth < DEEPEST else 0):
                form = facts.field(field.encode_name).format
                values[field.name] = self.value(field.type, field.name, form, depth + 1, kind.__name__)
        return kind(**values)

    def value(self, hint: Any, name: str, form: str, depth: int, owner: str) -> Any:
        origin = typing.get_origin(hint)
        if owner == "JSONSchemaProps" and (name in SCHEMAS or (name == "dependencies" and origin is not dict)):
            return self.anything(name, depth)
        if origin in (typing.Union, types.UnionType):
            members = [m for m in typing.get_args(hint) if m is not type(None)]
            if owner == "JSONSchemaProps" and float in members:
                return self.random.choice((0.5, 3.0, -2.25))
            if float in members and str in members:
                return self.random.choice(("1", "500m", "1Gi", "2k"))
            return self.value(self.random.choice(members), name, form, depth, owner)
        if origin is list:
            if depth > DEEPEST:
                return []
            (member,) = typing.get_args(hint)
            return [self.value(member, name, form, depth, owner) for _ in range(self.random.randint(0, 2))]
        if origin is dict:
            _, member = typing.get_args(hint)
            if depth > DEEPEST:
                return {}
            keys = self.random.sample(("a", "cpu", "a.b/c-d", "storage"), self.random.randint(0, 3))
            byte_map = name in ("binary_data",) or (name == "data" and owner == "Secret")
            return {key: self.value(member, name, "byte" if byte_map else "", depth, owner) for key in keys}
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.struct(hint, depth)
        if hint is str:
            return self.text(name, form)
        if hint is int:
            return self.random.choice((1, 2, 127, 128, 600, 2**31 - 1, -1))
        if hint is float:
            return self.random.choice((0.5, 3.0, -2.25))
        return True if hint is bool else self.anything(name, depth)

    def text(self, name: str, form: str) -> str:
        if form == "byte":
            return self.random.choice(("YQ==", "aGVsbG8gd29ybGQ=", "/wA="))
        if name in ("renew_time", "acquire_time", "event_time", "last_observed_time", "ping_time"):
            return "2026-01-02T03:04:05.678901Z"
        if name == "disrupted_pods" or name.endswith(("time", "timestamp", "_at", "time_added")) or form == "date-time":
            return self.random.choice(("2026-01-02T03:04:05Z", "1969-12-31T23:59:59Z"))
        return self.random.choice(("a", "Always", "10.0.0.1", "größer 日本 🚢", "x" * 200, "line\nbreak"))

    def anything(self, name: str, depth: int) -> Any:
        if name in SCHEMAS:
            inner = {"type": "string", "maxLength": 3}
            return self.random.choice(
                (inner, {"properties": {"p": inner}}, True if name != "items" else [inner, inner])
            )
        if name == "dependencies":
            return self.random.choice((["a", "b"], {"type": "string"}))
        if name in ("raw", "fields_v1", "parameters", "data", "old_object", "object"):
            return {"a": {"b": [1, None, "x", 0.5]}}
        return self.random.choice(({"a": "b"}, "x", 1, [1, "2"], False, 0, ""))


def _plain(hint: Any) -> bool:
    """Return whether a field is always there: required scalars, and the structs that a kind always has."""
    return hint in (str, int, bool, float) or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))


def make(
    kind: type[msgspec.Struct], seed: int, skip: Callable[[Any], set[str]] = lambda struct: set()
) -> dict[str, Any]:
    """Return an object in JSON's shape as the server would keep it."""
    obj = serialize.to_dict(Maker(seed, skip).struct(kind))
    canonical.rewrite(obj, kind)
    return obj
