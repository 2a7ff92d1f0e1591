"""Identity of list items: the path element of FieldsV1 that selects one."""

from __future__ import annotations

from typing import Any

import msgspec

from control.patch.schema import Node, Shape

_encode = msgspec.json.Encoder().encode


class ItemWithoutKey(ValueError):
    """An item of a keyed list lacks a key field that has no default."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f'associative list with keys has an element that omits key field "{key}" (and doesn\'t have default value)'
        )


def step(node: Node, item: Any) -> str:
    """Return the step to an item: `k:{"name":"web"}` in a keyed list, `v:"x"` in a set. Raises ItemWithoutKey."""
    if node.shape is Shape.SET:
        return "v:" + _encode(item).decode()
    if not isinstance(item, dict):
        raise ItemWithoutKey(node.keys[0])
    parts = []
    for key in node.keys:
        value = item.get(key)
        if value is None:
            value = node.defaults.get(key)
            if value is None:
                raise ItemWithoutKey(key)
        parts.append(f'"{key}":{_encode(value).decode()}')
    return "k:{" + ",".join(parts) + "}"


class Duplicates(list[Any]):
    """Items of one list with one identity, which is a mistake but not an error in objects that exist."""


def index(node: Node, items: list[Any]) -> dict[str, Any]:
    """Return the items by step, in order."""
    found: dict[str, Any] = {}
    for item in items:
        name = step(node, item)
        if name not in found:
            found[name] = item
        elif isinstance(found[name], Duplicates):
            found[name].append(item)
        else:
            found[name] = Duplicates([found[name], item])
    return found
