"""Objects with one large list or map each, for every such field of every kind: valid input with unexpected cost.

A field's items differ from one another in all that they hold, so that whatever compares them with one another does so to the
end. Objects are of their type, not valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from kube.json_object import Object
from kube.resources import RESOURCES, Resource
from kube.schema.fields import ANY, FieldType, field_types, of_struct

_SHARED = {"PodTemplateSpec", "ObjectMeta", "PersistentVolumeClaimTemplate"}
"""Parts of many kinds that are looked at once, where they are a kind's own."""


@dataclass(frozen=True)
class LargeField:
    """A list or map of a kind: its path and its type."""

    resource: Resource
    path: tuple[str, ...]
    type: FieldType
    equal: bool = False
    """True if all items are equal, so that each conflicts with every other."""

    def __str__(self) -> str:
        return f"{self.resource.target} {'.'.join(self.path)}{' of equal items' if self.equal else ''}"

    def build(self, count: int, first: int = 0) -> Object:
        """Make an object whose field has `count` items, numbered from `first` on."""
        item = self.type.item or ANY
        large: Any = [item_of(item, first if self.equal else n) for n in range(first, first + count)]
        if self.type.kind == "map":
            large = {f"k{n}": value for n, value in enumerate(large)}
        for step in reversed(self.path):
            large = [large] if step == "[]" else {"k": large} if step == "{}" else {step: large}
        obj: Object = large
        obj |= {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        obj["metadata"] = {"name": "large"} | obj.get("metadata", {})
        return obj


def large_fields() -> list[LargeField]:
    """Return every list and map of every kind that clients may write."""
    found: dict[tuple[str, tuple[str, ...]], LargeField] = {}
    for resource in RESOURCES:
        if resource.type is not None:
            for path, type_ in _large(of_struct(resource.type), (), ()):
                field = LargeField(resource, path, type_)
                found.setdefault((resource.target, path), field)
    return list(found.values())


def _large(
    type_: FieldType, path: tuple[str, ...], above: tuple[type[msgspec.Struct], ...]
) -> Iterator[tuple[tuple[str, ...], FieldType]]:
    if type_.kind in ("list", "map"):
        yield path, type_
        if type_.item is not None:
            yield from _large(type_.item, (*path, "[]" if type_.kind == "list" else "{}"), above)
    elif type_.struct is not None and type_.struct not in above and len(path) < 12:
        if above and type_.struct.__name__ in _SHARED and above[0].__name__ not in ("PodTemplate", "ConfigMap"):
            return
        for name, inner in field_types(type_.struct).items():
            yield from _large(inner, (*path, name), (*above, type_.struct))


def item_of(type_: FieldType, number: int, depth: int = 2) -> Any:
    """Make a value of a type that differs from that of every other number."""
    if type_.kind == "struct" and type_.struct is not None:
        if depth == 0:
            return {}
        return {
            # Numbers of one size: beyond its range a number would make problems only in long lists.
            name: item_of(inner, number % 50 + 1 if inner.go in ("int32", "int64") else number, depth - 1)
            for name, inner in field_types(type_.struct).items()
            if (inner.scalar and inner.kind not in ("quantity", "int-or-string")) or depth > 1
        }
    if type_.kind == "list":
        return [item_of(type_.item or ANY, number, depth - 1)] if depth > 1 else []
    if type_.kind == "map":
        return {f"n{number}": item_of(type_.item or ANY, number, depth - 1)} if depth > 1 else {}
    if type_.either is not None:
        return {}  # a schema, which may also be a list of some or say whether everything is allowed
    return _SCALARS.get(type_.go, lambda n: f"n{n}")(number)


_SCALARS: dict[str, Any] = {
    "bool": lambda n: True,
    "int32": lambda n: n % 60000,
    "int64": lambda n: n,
    "float64": lambda n: float(n),
    "resource.Quantity": lambda n: str(n + 1),
    "intstr.IntOrString": lambda n: n,
}
