"""Bookkeeping of updates: whoever changes a field owns it from then on, and nobody else does.

This runs on every create, update and patch that is not an apply. Most writes change a few fields of the status that their
writer already owns, so the work is proportional to the difference: equal parts are passed over, and the sets of managers
that the difference does not touch are taken over as they are.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from control.patch.apply.compare import compare
from control.patch.apply.fieldset import Set, contains, difference, intersection, ordered, union
from control.patch.apply.items import ItemWithoutKey
from control.patch.apply.managers import Key, Manager, decode, encode
from control.patch.schema import Node
from kube.clock import format_time

ManagedFields = list[dict[str, Any]]
_RESET: ManagedFields = [{}]


def track_update(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str,
    subresource: str,
    schema: Node,
    now: datetime,
    skip: frozenset[str] = frozenset(),
) -> ManagedFields:
    """Return the managedFields of `new` after `manager` made it out of `old` (None: created it).

    `skip` names top-level fields that this endpoint resets (`status` of a resource with that subresource).
    """
    before = _entries(old)
    offered = before if subresource and old is not None else _entries(new)
    if offered == _RESET and offered is not before:
        return []
    managers = decode(offered) if offered else None
    entries = offered
    if not managers:
        managers, entries = decode(before) or {}, before
    if not managers and old is not None:
        return []  # nobody ever tracked this object
    try:
        changed, removed = compare(schema, old or {}, new, skip)
    except ItemWithoutKey:
        return entries
    if changed is None and removed is None:
        return entries
    return encode(_updated(managers, changed, removed, manager, subresource, new.get("apiVersion", ""), now))


def _entries(obj: dict[str, Any] | None) -> ManagedFields:
    return (obj or {}).get("metadata", {}).get("managedFields") or []


def _updated(
    managers: dict[Key, Manager],
    changed: Set | None,
    removed: Set | None,
    name: str,
    subresource: str,
    api_version: str,
    now: datetime,
) -> dict[Key, Manager]:
    key: Key = (name, "Update", api_version, subresource)
    result: dict[Key, Manager] = {}
    for other in managers.values():
        fields: Set | None = other.fields
        if removed is not None:
            fields = difference(fields, removed)
        if changed is not None and other.key != key:
            fields = difference(fields, changed)
        if fields is other.fields:
            result[other.key] = other
        elif fields is not None:
            result[other.key] = replace(other, fields=fields)
    if changed is not None:
        mine = result.get(key)
        time = format_time(now)
        if mine is not None and contains(mine.fields, changed):
            result[key] = replace(mine, time=time)
        else:
            fields = ordered(union(mine.fields if mine else None, changed) or {})
            result[key] = Manager(name, "Update", api_version, fields, time, subresource)
    return result


def conflicts_of(managers: dict[Key, Manager], changed: Set | None, key: Key) -> list[tuple[Manager, Set]]:
    """Return which managers besides `key` own fields of a change, and which."""
    found = []
    for other in managers.values():
        if other.key != key and (common := intersection(other.fields, changed)) is not None:
            found.append((other, common))
    return found
