"""Field managers, decoded from metadata.managedFields: name, operation, subresource and owned fields."""

from __future__ import annotations

from operator import is_
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from control.patch.apply.fieldset import Set, ordered, united
from kube import errors

Operation = Literal["Apply", "Update"]
MAX_UPDATE_MANAGERS = 10
MAX_MANAGERS = 1000
"""Entries of an object. Upstream limits those of updates only, but each apply costs work in proportion to all of them."""
ANCIENT = "ancient-changes"
Key = tuple[str, str, str, str]


class Manager(msgspec.Struct, frozen=True):
    """One entry. `fields` is shared with the object it was read from: it must not be changed."""

    name: str
    operation: str
    api_version: str
    fields: Set
    time: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Identity of a manager: for appliers without the version."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.name, self.operation, version, self.subresource


def decode(entries: Any) -> dict[Key, Manager] | None:
    """Decode managedFields; None if this server does not support their form."""
    managers: dict[Key, Manager] = {}
    if not isinstance(entries, list):
        return None if entries else managers
    for entry in entries:
        fields = entry.get("fieldsV1") if isinstance(entry, dict) else None
        if entry.get("operation") not in ("Apply", "Update") or not isinstance(fields, dict | None):
            return None
        if entry.get("fieldsType") not in ("FieldsV1", None, ""):
            return None
        manager = Manager(
            entry.get("manager", ""),
            entry["operation"],
            entry.get("apiVersion", ""),
            fields or {},
            entry.get("time") or "",
            entry.get("subresource") or "",
        )
        managers[manager.key] = manager
    return managers


def well_formed(entries: Any) -> Any:
    """Return entries without those whose fields are no sets of fields, and with null for a set without members as `{}`.

    Clients write them. Upstream drops them as well where it decodes them (managedfields, fieldpath's FromJSON).
    """
    if not isinstance(entries, list):
        return entries
    found = [sound for entry in entries if (sound := _well_formed(entry)) is not None]
    return entries if len(found) == len(entries) and all(map(is_, found, entries)) else found


def _well_formed(entry: Any) -> Any:
    """Return an entry, a copy of it without null, or None if it is malformed."""
    fields = entry.get("fieldsV1") if isinstance(entry, dict) else None
    if fields is None or _is_set(fields):
        return entry
    copied = _without_nulls(fields)
    return None if copied is None else {**entry, "fieldsV1": copied}


def _is_set(fields: Any) -> bool:
    rest = [fields]
    for each in rest:  # it grows
        if not isinstance(each, dict):
            return False
        rest.extend(each.values())
    return True


def _without_nulls(fields: Any) -> Set | None:
    """Return a copy with `{}` for null; None if there is something else than objects."""
    copied: Set = {}
    rest: list[tuple[Any, Set]] = [(fields, copied)]
    for given, copy in rest:  # it grows
        if not isinstance(given, dict | None):
            return None
        for key, value in (given or {}).items():
            copy[key] = {}
            rest.append((value, copy[key]))
    return copied


def encode(managers: dict[Key, Manager]) -> list[dict[str, Any]]:
    """Write managedFields in upstream's order: appliers first, then by time and name. Managers without fields are omitted."""
    capped = _cap([manager for manager in managers.values() if manager.fields])
    capped.sort(key=lambda m: (m.operation, m.time, m.name, m.api_version, m.subresource))
    return [_entry(manager) for manager in capped]


def _entry(manager: Manager) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": manager.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": manager.fields,
        "subresource": manager.subresource,
    }
    for optional in ("manager", "time", "subresource"):
        if not entry[optional]:
            del entry[optional]
    return entry


def _cap(managers: list[Manager]) -> list[Manager]:
    """Fold the oldest update managers of a version into one when there are more than ten."""
    updates = [manager for manager in managers if manager.operation == "Update"]
    excess = len(updates) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return managers
    updates.sort(key=lambda m: (m.time, m.name, m.api_version, m.subresource))
    folded: dict[str, list[Manager]] = {}
    for manager in updates:
        bucket = folded.setdefault(manager.api_version, [])
        bucket.append(manager)
        if len(bucket) > 1:
            excess -= 1
            if excess == 0:
                break
    gone: set[Key] = set()
    buckets: list[Manager] = []
    for version, bucket in folded.items():
        if len(bucket) > 1:
            gone.update(manager.key for manager in bucket)
            fields = united([manager.fields for manager in bucket])
            buckets.append(Manager(ANCIENT, "Update", version, ordered(fields or {}), bucket[-1].time))
    return [manager for manager in managers if manager.key not in gone] + buckets


def check_number(obj: dict[str, Any], entries: list[Any], before: list[Any]) -> None:
    """Raise 422 for a write that lists more than MAX_MANAGERS managers; an object that already does may keep as many."""
    if len(entries) <= MAX_MANAGERS or len(entries) <= len(before):
        return
    group = obj.get("apiVersion", "").rpartition("/")[0]
    error = errors.too_many("metadata.managedFields", len(entries), MAX_MANAGERS)
    raise errors.invalid(group, obj.get("kind", ""), obj.get("metadata", {}).get("name", ""), [error])


def with_fields(manager: Manager, fields: Set) -> Manager:
    """Return the manager with these fields instead."""
    return replace(manager, fields=ordered(fields))
