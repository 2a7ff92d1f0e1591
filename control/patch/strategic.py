"""Strategic merge patch: a merge patch that uses the types, so that lists merge by their items' keys.

Maps merge by key and null removes. A list merges item by item where its field has the patch strategy "merge" (items by
the merge key, scalars as a set), else it is replaced. Directives in the patch change this:

- `$patch: replace | delete | merge` in a map: use the patch as it is, empty the map, merge (the default);
  in a list's item: replace the whole list by the patch's other items, delete the item with that key;
- `$retainKeys: [...]`: drop the keys of the map that are not listed;
- `$deleteFromPrimitiveList/x: [...]`: remove these scalars from the list x;
- `$setElementOrder/x: [...]`: bring the items of x into this order; items only the server has keep their places.

Rules: kubernetes/community, strategic-merge-patch.md, and apimachinery's pkg/util/strategicpatch.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import msgspec

from control.patch.json_patch import identity, rejected
from control.patch.ordering import interleave
from control.patch.schema import SCALAR, Field, Node, of_struct
from kube.errors import StatusError, bad_request

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList/"
ORDER = "$setElementOrder/"
_FREE = Field("", SCALAR)


def strategic_merge(original: dict[str, Any], patch: Any, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a patched copy of an object of a generated type; raises StatusError 400 or 422."""
    if not isinstance(patch, dict):
        raise bad_request("invalid JSON document")
    return _merge_map(original, patch, of_struct(kind))


def _merge_map(original: dict[str, Any], patch: dict[str, Any], node: Node | None) -> dict[str, Any]:
    if DIRECTIVE in patch:
        directive = patch[DIRECTIVE]
        if directive == "delete":
            return {}
        if directive == "replace":
            return {key: _plain(value) for key, value in patch.items() if key != DIRECTIVE}
        if directive != "merge":
            raise _unknown(directive, patch)
    merged = dict(original)
    if RETAIN in patch:
        _retain(merged, patch)
    orders = {key.removeprefix(ORDER): value for key, value in patch.items() if key.startswith(ORDER)}
    for key, value in patch.items():
        if key in (DIRECTIVE, RETAIN) or key.startswith(ORDER):
            continue
        if key.startswith(DELETE_FROM):
            _delete_from(merged, key.removeprefix(DELETE_FROM), value)
            continue
        field = _field(node, key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _plain(value) if "replace" in field.strategy else _merge_map(merged[key], value, field.node)
        elif isinstance(value, list) and isinstance(merged.get(key), list):
            merged[key] = _merge_list(merged[key], value, field) if "merge" in field.strategy else _plain(value)
        else:
            merged[key] = _plain(value)
    for key, order in orders.items():
        _set_order(merged, original, key, order, _field(node, key), patch)
    return merged


def _field(node: Node | None, key: str) -> Field:
    if node is None:
        return _FREE
    if (field := node.fields.get(key)) is not None:
        return field
    return _FREE if node.item is None else Field("", node.item)


def _retain(merged: dict[str, Any], patch: dict[str, Any]) -> None:
    retained = patch[RETAIN]
    kept = {key for key in retained if isinstance(key, str)} if isinstance(retained, list) else None
    if kept is None or any(
        key not in kept for key, value in patch.items() if not key.startswith("$") and value is not None
    ):
        raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in merged if key not in kept]:
        del merged[key]


def _delete_from(merged: dict[str, Any], key: str, gone: Any) -> None:
    if not isinstance(gone, list):
        raise bad_request("invalid patch format of primitive list")
    if isinstance(merged.get(key), list):
        named = set(map(identity, gone))
        merged[key] = [item for item in merged[key] if identity(item) not in named]


def _merge_list(original: list[Any], patch: list[Any], field: Field) -> list[Any]:
    kinds = {_category(item) for item in (*original, *patch)}
    if "list" in kinds:
        raise rejected("lists of lists are not supported")
    if len(kinds) > 1:
        raise rejected("list element types are not identical")
    if kinds == {"map"}:
        return _merge_items(original, patch, field)
    merged: dict[Hashable, Any] = {}
    for item in (*original, *patch):
        merged.setdefault(identity(item), item)
    return interleave(list(merged.values()), patch, original, identity)


def _category(item: Any) -> str:
    return "map" if isinstance(item, dict) else "list" if isinstance(item, list) else type(item).__name__


def _merge_items(original: list[dict[str, Any]], patch: list[dict[str, Any]], field: Field) -> list[Any]:
    """Merge lists of maps by their merge key."""
    if not (key := field.merge_key):
        raise rejected("cannot merge lists without merge key")
    gone: set[Hashable] = set()
    plain, replace = [], False
    for item in patch:
        directive = item.get(DIRECTIVE)
        if directive == "replace":
            replace = True
        elif directive == "delete":
            gone.add(identity(_key(item, key)))
        elif directive in (None, "merge"):
            plain.append({name: value for name, value in item.items() if name != DIRECTIVE})
        else:
            raise _unknown(directive, item)
    if replace:
        return [_plain(item) for item in plain]
    merged = [other for other in original if identity(other.get(key)) not in gone]
    unnamed = next((index for index, other in enumerate(merged) if other.get(key) is None), len(merged))
    places: dict[Hashable, int] = {}
    for index, other in enumerate(merged[:unnamed]):
        places.setdefault(identity(other[key]), index)
    for item in plain:
        wanted = identity(_key(item, key))
        if (place := places.get(wanted)) is not None:
            merged[place] = _merge_map(merged[place], item, field.node.item)
            continue
        if unnamed < len(merged):
            _key(merged[unnamed], key)
        places[wanted] = unnamed = len(merged)
        unnamed += 1
        merged.append(_plain(item))
    return interleave(merged, plain, original, lambda item: identity(item.get(key)))


def _key(item: dict[str, Any], key: str) -> Any:
    if item.get(key) is None:
        raise rejected(f"map: {_show(item)} does not contain declared merge key: {key}")
    return item[key]


def _set_order(
    merged: dict[str, Any], original: dict[str, Any], key: str, order: Any, field: Field, patch: dict[str, Any]
) -> None:
    """Apply `$setElementOrder/key`, which must contain every item of the patch for the list."""
    if not isinstance(order, list):
        raise bad_request("invalid patch format of setElementOrder list")

    def identify(item: Any) -> Hashable:
        if field.merge_key and isinstance(item, dict):
            return field.merge_key, identity(item.get(field.merge_key))
        return identity(item)

    places, position = [identify(item) for item in order], 0
    for item in patch.get(key) or []:
        if isinstance(item, dict) and DIRECTIVE in item:
            continue
        wanted = identify(item)
        while position < len(places) and places[position] != wanted:
            position += 1
        if position == len(places):
            raise bad_request("invalid patch format of setElementOrder list")
    if isinstance(merged.get(key), list):
        live = original.get(key)
        merged[key] = interleave(merged[key], order, live if isinstance(live, list) else [], identify)


def _plain(value: Any) -> Any:
    """Return a new value without its directives and without the items that they delete."""
    if isinstance(value, dict):
        if value.get(DIRECTIVE) == "delete":
            return {}
        return {
            key: _plain(part)
            for key, part in value.items()
            if part is not None and not (key in (DIRECTIVE, RETAIN) or key.startswith((DELETE_FROM, ORDER)))
        }
    if isinstance(value, list):
        kept = [item for item in value if not (isinstance(item, dict) and item.get(DIRECTIVE) == "delete")]
        return [_plain(item) for item in kept if not (isinstance(item, dict) and item == {DIRECTIVE: "replace"})]
    return value


def _unknown(directive: Any, where: dict[str, Any]) -> StatusError:
    return bad_request(f"unknown patch type: {directive} in map: {_show(where)}")


def _show(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
