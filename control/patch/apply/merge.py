"""Merges an applied configuration into the live object, and removes a set of fields from an object."""

from __future__ import annotations

from typing import Any

from control.patch.apply.fieldset import Set, is_member
from control.patch.apply.items import Duplicates, index, step
from control.patch.schema import DEDUCED, Node, Shape


def merge(node: Node, live: Any, config: Any) -> Any:
    """Return the live value merged with the configuration's fields."""
    shape = node.shape
    if isinstance(live, dict) and isinstance(config, dict) and shape in (Shape.STRUCT, Shape.MAP, Shape.DEDUCED):
        merged = dict(live)
        for key, value in config.items():
            child = _child(node, key)
            merged[key] = merge(child, live[key], value) if key in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list) and shape in (Shape.KEYED, Shape.SET):
        return _merge_items(node, live, config)
    return config


def _child(node: Node, key: str) -> Node:
    if node.shape is Shape.STRUCT and (field := node.fields.get(key)) is not None:
        return field.node
    return DEDUCED if node.shape is Shape.DEDUCED else node.item or DEDUCED


def _merge_items(node: Node, live: list[Any], config: list[Any]) -> list[Any]:
    """Merge items by identity, in the configuration's order; other items stay before the item that followed them."""
    item = node.item or DEDUCED
    have, want = index(node, live), index(node, config)
    order = list(want)
    shared = [name for name in order if name in have]
    merged: list[Any] = []
    taken = 0
    next_shared = 0

    def take(name: str) -> None:
        old, new = have.get(name), want[name]
        if isinstance(new, Duplicates):
            merged.extend(new)
        elif old is None or isinstance(old, Duplicates):
            merged.append(new)
        else:
            merged.append(merge(item, old, new))

    for value in live:
        name = step(node, value)
        if name not in want:
            merged.append(value)
        elif next_shared < len(shared) and name == shared[next_shared]:
            while True:
                take(order[taken])
                taken += 1
                if order[taken - 1] == name:
                    break
            next_shared += 1
    for name in order[taken:]:
        take(name)
    return merged


def remove(node: Node, value: Any, doomed: Set | None) -> Any:
    """Return a value without the fields and items in a set; containers that become empty are kept."""
    if not doomed:
        return value
    shape = node.shape
    if isinstance(value, dict) and shape in (Shape.STRUCT, Shape.MAP, Shape.DEDUCED):
        kept: dict[str, Any] = {}
        for key, part in value.items():
            below = doomed.get(f"f:{key}")
            if below is None:
                kept[key] = part
            elif not is_member(below):
                kept[key] = remove(_child(node, key), part, below)
        return kept
    if isinstance(value, list) and shape in (Shape.KEYED, Shape.SET):
        items: list[Any] = []
        for part in value:
            below = doomed.get(step(node, part))
            if below is None:
                items.append(part)
            elif not is_member(below):
                items.append(remove(node.item or DEDUCED, part, below))
        return items
    return value
