"""Field ownership after updates: the manager that changes a field becomes its only owner.

This runs on every create, update and patch that is not an apply. Most writes change a few fields of the status that their
manager already owns, so the work is proportional to the difference: equal parts are skipped, and the field sets of managers
that the difference does not concern are kept unchanged.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from control.patch.apply.compare import compare
from control.patch.apply.fieldset import Set, contains, difference, intersection, ordered, union
from control.patch.apply.items import ItemWithoutKey
from control.patch.apply.managers import Key, Manager, check_number, decode, encode, well_formed
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

    `skip` names top-level fields that this endpoint resets (`status` of a resource with that subresource). Raises 422 if
    `new` lists too many managers.
    """
    before = _entries(old)
    managers, entries = _managers(old, new, before, subresource)
    if managers is not None:
        try:
            changed, removed = compare(schema, old or {}, new, skip)
        except ItemWithoutKey:  # the fields are not known: the entries stay
            changed = removed = None
        if changed is not None or removed is not None:
            key: Key = (manager, "Update", new.get("apiVersion", ""), subresource)
            try:
                entries = encode(_updated(managers, changed, removed, key, now))
            except (AttributeError, LookupError, TypeError, ValueError):
                # Earlier versions stored malformed entries. Checking all entries on each write would cost more than this retry.
                managers = decode(well_formed(entries)) or {}
                entries = encode(_updated(managers, changed, removed, key, now))
    check_number(new, entries, before)
    return entries


def _managers(
    old: dict[str, Any] | None, new: dict[str, Any], before: ManagedFields, subresource: str
) -> tuple[dict[Key, Manager] | None, ManagedFields]:
    """Return the managers before this write, and their entries; None if the object is not tracked."""
    entries = before if subresource and old is not None else well_formed(_entries(new))
    if entries == _RESET and entries is not before:
        return None, []
    managers = decode(entries) if entries else None
    if not managers:
        managers, entries = decode(before) or {}, before
    return (managers, entries) if managers or old is None else (None, [])


def _entries(obj: dict[str, Any] | None) -> ManagedFields:
    return (obj or {}).get("metadata", {}).get("managedFields") or []


def _updated(
    managers: dict[Key, Manager],
    changed: Set | None,
    removed: Set | None,
    key: Key,
    now: datetime,
) -> dict[Key, Manager]:
    name, operation, api_version, subresource = key
    result: dict[Key, Manager] = {}
    for other_key, other in managers.items():
        fields: Set | None = other.fields
        if removed is not None:
            fields = difference(fields, removed)
        if changed is not None and other_key != key:
            fields = difference(fields, changed)
        if fields is other.fields:
            result[other_key] = other
        elif fields is not None:
            result[other_key] = replace(other, fields=fields)
    if changed is not None:
        mine = result.get(key)
        time = format_time(now)
        if mine is not None and contains(mine.fields, changed):
            result[key] = replace(mine, time=time)
        else:
            fields = ordered(union(mine.fields if mine else None, changed) or {})
            result[key] = Manager(name, operation, api_version, fields, time, subresource)
    return result


def conflicts_of(managers: dict[Key, Manager], changed: Set | None, key: Key) -> list[tuple[Manager, Set]]:
    """Return which managers besides `key` own fields of a change, and which."""
    found = []
    for other in managers.values():
        if other.key != key and (common := intersection(other.fields, changed)) is not None:
            found.append((other, common))
    return found
