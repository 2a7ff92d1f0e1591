"""Compares two states of an object field by field, and lists the fields of an applied configuration.

`compare` is on the path of every write. It relies on dict comparison in C to pass over everything that is equal, and
descends only into what is not. A thing that appears or disappears counts with all that is in it, containers included; a
struct that the API's Go types hold by value is never absent, so it does not count itself.
"""

from __future__ import annotations

from typing import Any

from control.patch.apply.fieldset import HERE, LEAF, Set
from control.patch.apply.items import Duplicates, index
from control.patch.schema import DEDUCED, Field, Node, Shape

_STRUCT, _MAP, _KEYED, _SET, _DEDUCED = Shape.STRUCT, Shape.MAP, Shape.KEYED, Shape.SET, Shape.DEDUCED
_EMPTY: dict[str, Any] = {}


def compare(
    node: Node, old: dict[str, Any], new: dict[str, Any], skip: frozenset[str] = frozenset()
) -> tuple[Set | None, Set | None]:
    """Return (set or changed, removed) between two objects; top-level fields in `skip` are passed over."""
    if skip:
        old = {key: value for key, value in old.items() if key not in skip}
        new = {key: value for key, value in new.items() if key not in skip}
    return _struct(node, old, new)


def _differ(node: Node, old: Any, new: Any) -> tuple[Set | None, Set | None]:
    """Compare two different values that are both there."""
    shape = node.shape
    if isinstance(new, dict) and isinstance(old, dict):
        if shape is _STRUCT and (old or new):
            return _struct(node, old, new)
        if shape is _MAP and (old or new):
            return _map(node.item or DEDUCED, old, new)
        if shape is _DEDUCED and (old or new):
            return _map(node, old, new)
    elif isinstance(new, list) and isinstance(old, list) and (shape is _KEYED or shape is _SET):
        return _items(node, old, new)
    return LEAF, None


def _struct(node: Node, old: dict[str, Any], new: dict[str, Any]) -> tuple[Set | None, Set | None]:
    changed: Set = {}
    removed: Set = {}
    fields = node.fields
    for key, value in new.items():
        before = old.get(key)
        if before == value or value is None:
            continue
        field = fields.get(key) or _unknown(node, key)
        if field is None or field.skipped:
            continue
        if before is None:
            if field.always and isinstance(value, dict):
                before = _EMPTY
            elif field.bare and isinstance(value, list | dict):
                before = type(value)()
            else:
                changed[field.path] = whole(field.node, value)
                continue
            if before == value:
                continue  # an empty struct that is never absent: nobody set it, and nobody owns it
        added, gone = _differ(field.node, before, value)
        if added is not None:
            changed[field.path] = added
        if gone is not None:
            removed[field.path] = gone
    for key, before in old.items():
        if before is None or new.get(key) is not None:
            continue
        field = fields.get(key) or _unknown(node, key)
        if field is None or field.skipped:
            continue
        if field.always and isinstance(before, dict):
            gone = _differ(field.node, before, _EMPTY)[1] if before else None
        elif field.bare and isinstance(before, list | dict):
            gone = _differ(field.node, before, type(before)())[1] if before else None
        else:
            gone = whole(field.node, before)
        if gone is not None:
            removed[field.path] = gone
    return changed or None, removed or None


def _unknown(node: Node, key: str) -> Field | None:
    """Return a field for a key that the type does not name, where it lets such keys be."""
    return None if node.item is None else Field(f"f:{key}", node.item)


def _map(item: Node, old: dict[str, Any], new: dict[str, Any]) -> tuple[Set | None, Set | None]:
    changed: Set = {}
    removed: Set = {}
    for key, value in new.items():
        before = old.get(key)
        if before == value:
            continue
        if before is None:
            changed[f"f:{key}"] = whole(item, value)
            continue
        added, gone = _differ(item, before, value)
        if added is not None:
            changed[f"f:{key}"] = added
        if gone is not None:
            removed[f"f:{key}"] = gone
    for key, before in old.items():
        if key not in new:
            removed[f"f:{key}"] = whole(item, before)
    return changed or None, removed or None


def _items(node: Node, old: list[Any], new: list[Any]) -> tuple[Set | None, Set | None]:
    item = node.item or DEDUCED
    before, after = index(node, old), index(node, new)
    changed: Set = {}
    removed: Set = {}
    for step, value in after.items():
        if step not in before:
            changed[step] = LEAF if isinstance(value, Duplicates) else whole(item, value)
        elif before[step] != value:
            if isinstance(value, Duplicates) or isinstance(before[step], Duplicates):
                changed[step] = LEAF
                continue
            added, gone = _differ(item, before[step], value)
            if added is not None:
                changed[step] = added
            if gone is not None:
                removed[step] = gone
    for step, value in before.items():
        if step not in after:
            removed[step] = LEAF if isinstance(value, Duplicates) else whole(item, value)
    return changed or None, removed or None


def whole(node: Node, value: Any) -> Set:
    """Return a value with everything in it as a set."""
    shape = node.shape
    if not value or shape is Shape.LEAF:
        return LEAF
    inner: Set
    if isinstance(value, dict):
        if shape is _STRUCT:
            fields = node.fields
            inner = {HERE: LEAF}
            for key, part in value.items():
                field = fields.get(key) or _unknown(node, key)
                if field is not None and part is not None:
                    inner[field.path] = whole(field.node, part)
            return inner
        if shape is _MAP or shape is _DEDUCED:
            item = (node.item if shape is _MAP else node) or DEDUCED
            inner = {f"f:{key}": whole(item, part) for key, part in value.items()}
            return {HERE: LEAF, **inner}
    elif isinstance(value, list) and (shape is _KEYED or shape is _SET):
        item = node.item or DEDUCED
        inner = {
            step: LEAF if isinstance(part, Duplicates) else whole(item, part)
            for step, part in index(node, value).items()
        }
        return {HERE: LEAF, **inner}
    return LEAF


def fields_of(node: Node, value: Any, skip: frozenset[str] = frozenset()) -> Set | None:
    """Return the fields that an applied configuration has, which are those its manager will own.

    Structs and lists count through what is in them, free keys and list items also by themselves.
    """
    shape = node.shape
    found: Set = {}
    if isinstance(value, dict) and shape is _STRUCT:
        for key, part in value.items():
            field = None if key in skip else node.fields.get(key)
            if field is None and key not in skip and node.item is not None:
                found[f"f:{key}"] = _and_itself(fields_of(node.item, part))
            elif field is not None and not field.skipped:
                inner = LEAF if part is None or part == {} else fields_of(field.node, part)
                if inner is not None:
                    found[field.path] = inner
    elif isinstance(value, dict) and (shape is _MAP or shape is _DEDUCED):
        item = (node.item if shape is _MAP else node) or DEDUCED
        for key, part in value.items():
            found[f"f:{key}"] = _and_itself(fields_of(item, part))
    elif isinstance(value, list) and (shape is _KEYED or shape is _SET):
        item = node.item or DEDUCED
        for step, part in index(node, value).items():
            found[step] = LEAF if isinstance(part, Duplicates) else _and_itself(fields_of(item, part))
    elif value is None and shape is not Shape.LEAF:
        return None
    else:
        return LEAF
    return found or None


def _and_itself(node: Set | None) -> Set:
    return {HERE: LEAF, **node} if node else LEAF


def with_named(node: Node, tree: Set | None) -> Set | None:
    """Return a set in which structs with members count themselves, so that removing can take an empty one along."""
    if not tree:
        return tree
    result: Set = {}
    for step, part in tree.items():
        child, named = _below(node, step)
        inner = with_named(child, part) if part else part
        result[step] = {HERE: LEAF, **inner} if named and inner else inner
    return result


def _below(node: Node, step: str) -> tuple[Node, bool]:
    """Return the shape behind a step and whether the step is a struct's field."""
    if step.startswith("f:"):
        field = node.fields.get(step[2:]) if node.shape is _STRUCT else None
        if field is not None:
            return field.node, True
    return (DEDUCED if node.shape is _DEDUCED else node.item or DEDUCED), False
