"""Facts that the generated types cannot express: merge keys, list types, required fields, formats.

The definitions have no enums but those of apiVersion and kind, and no defaults, and the fields that they require are those
that Go always writes: validation and defaults are not derived from them (see control/registry).

The facts are keyed by "module.Class" and loaded on first use. `facts(core_v1.PodSpec).field("containers")` answers how
that list merges in a strategic merge patch and who owns its items in server-side apply.
"""

from __future__ import annotations

import functools
import importlib.resources
from typing import Any, Literal

import msgspec


class FieldFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One field, by its wire name. Empty strings and tuples mean that nothing is declared."""

    merge_key: str = ""
    """x-kubernetes-patch-merge-key"""
    strategy: str = ""
    """x-kubernetes-patch-strategy: "merge", "replace", "retainKeys" or "merge,retainKeys"."""
    list_type: Literal["", "atomic", "set", "map"] = ""
    list_keys: tuple[str, ...] = ()
    map_type: Literal["", "atomic", "granular"] = ""
    format: str = ""
    """Of the scalar, or of the list's items and the map's values: "int32", "int64", "double", "byte", "date-time"
    (metav1.Time), "micro-time" (metav1.MicroTime)."""


_NOTHING = FieldFacts()


class TypeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One type; `id` is its OpenAPI definition (io.k8s.api.core.v1.Pod), `gvk` is set for kinds."""

    id: str = ""
    gvk: tuple[str, str, str] | None = None
    required: tuple[str, ...] = ()
    map_type: str = ""
    fields: dict[str, FieldFacts] = {}

    def field(self, wire_name: str) -> FieldFacts:
        return self.fields.get(wire_name, _NOTHING)


@functools.cache
def _all() -> dict[str, TypeFacts]:
    text = importlib.resources.files(__package__).joinpath("facts.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, TypeFacts])


_NONE = TypeFacts()


def facts(struct: type[Any]) -> TypeFacts:
    """Return the facts of a generated type; an unknown type has none."""
    return _all().get(f"{struct.__module__.rpartition('.')[2]}.{struct.__name__}", _NONE)
