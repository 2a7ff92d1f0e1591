"""Objects with one large list or map each, for every such field of every kind: what a client may send that looks harmless.

A field's items differ from one another in all that they hold, so that whatever compares them with one another does so to the
end. Objects are of their type, not valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from control.decoding import shapes
from control.decoding.shapes import Shape
from kube.resources import RESOURCES, Resource

Object = dict[str, Any]
_SHARED = {"PodTemplateSpec", "ObjectMeta", "PersistentVolumeClaimTemplate"}
"""Parts of many kinds that are looked at once, where they are a kind's own."""


@dataclass(frozen=True)
class LargeField:
    """A list or map of a kind: the way to it, and the shape of its items."""

    resource: Resource
    path: tuple[str, ...]
    shape: Shape

    def __str__(self) -> str:
        return f"{self.resource.target} {'.'.join(self.path)}"

    def build(self, count: int, first: int = 0) -> Object:
        """Make an object whose field has `count` items, numbered from `first` on."""
        item = self.shape.item or shapes.ANY
        large: Any = [item_of(item, n) for n in range(first, first + count)]
        if self.shape.kind == "map":
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
            for path, shape in _large(Shape("struct", "", resource.type), (), ()):
                field = LargeField(resource, path, shape)
                found.setdefault((resource.target, path), field)
    return list(found.values())


def _large(
    shape: Shape, path: tuple[str, ...], above: tuple[type[msgspec.Struct], ...]
) -> Iterator[tuple[tuple[str, ...], Shape]]:
    if shape.kind in ("list", "map"):
        yield path, shape
        if shape.item is not None:
            yield from _large(shape.item, (*path, "[]" if shape.kind == "list" else "{}"), above)
    elif shape.struct is not None and shape.struct not in above and len(path) < 12:
        if above and shape.struct.__name__ in _SHARED and above[0].__name__ not in ("PodTemplate", "ConfigMap"):
            return
        for name, inner in shapes.fields(shape.struct).items():
            yield from _large(inner, (*path, name), (*above, shape.struct))


def item_of(shape: Shape, number: int, depth: int = 2) -> Any:
    """Make a value of a shape that differs from that of every other number."""
    if shape.kind == "struct" and shape.struct is not None:
        if depth == 0:
            return {}
        return {
            # Numbers of one size: beyond its range a number would make problems only in long lists.
            name: item_of(inner, number % 50 + 1 if inner.go in ("int32", "int64") else number, depth - 1)
            for name, inner in shapes.fields(shape.struct).items()
            if inner.kind == "scalar" or depth > 1
        }
    if shape.kind == "list":
        return [item_of(shape.item or shapes.ANY, number, depth - 1)] if depth > 1 else []
    if shape.kind == "map":
        return {f"n{number}": item_of(shape.item or shapes.ANY, number, depth - 1)} if depth > 1 else {}
    return _SCALARS.get(shape.go, lambda n: f"n{n}")(number)


_SCALARS: dict[str, Any] = {
    "bool": lambda n: True,
    "int32": lambda n: n % 60000,
    "int64": lambda n: n,
    "float64": lambda n: float(n),
    "resource.Quantity": lambda n: str(n + 1),
    "intstr.IntOrString": lambda n: n,
}
