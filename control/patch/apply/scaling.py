"""Field ownership of a workload's replicas, converted between the workload and its Scale.

Applying a Scale applies one field of the workload. While it is applied, the managers of the workload's replicas own the
replicas of the Scale. The result is converted back: a manager that lost the field keeps its other fields, and the new owner
owns it in the workload through the scale subresource. Upstream: apimachinery's pkg/util/managedfields (ScaleHandler).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from control.patch.apply.fieldset import Set, contains, difference
from control.patch.apply.managers import decode, encode, well_formed

Entries = list[dict[str, Any]]
SCALE_VERSION = "autoscaling/v1"
REPLICAS = ("spec", "replicas")


def _set(path: Sequence[str]) -> Set:
    found: Set = {}
    for name in reversed(path):
        found = {f"f:{name}": found}
    return found


def to_scale(entries: Entries | None, path: Sequence[str]) -> Entries:
    """Return the managedFields of a Scale from its workload's; `path` leads to the workload's replicas."""
    here, there = _set(path), _set(REPLICAS)
    managers = decode(well_formed(entries)) or {}
    owners = [m for m in managers.values() if contains(m.fields, here)]
    scaled = [replace(m, api_version=SCALE_VERSION, fields=there) for m in owners]
    return encode({m.key: m for m in scaled})


def to_parent(entries: Entries | None, scale: Entries | None, path: Sequence[str], api_version: str) -> Entries:
    """Return a workload's managedFields after its Scale was applied with the managedFields `scale`."""
    here, there = _set(path), _set(REPLICAS)
    left = {
        (m.name, m.operation, m.subresource): m
        for m in (decode(well_formed(scale)) or {}).values()
        if contains(m.fields, there)
    }
    kept = {}
    for manager in (decode(well_formed(entries)) or {}).values():
        if contains(manager.fields, here):
            same = left.pop((manager.name, manager.operation, manager.subresource), None)
            if same is None:
                rest = difference(manager.fields, here)
                if rest is not None:
                    kept[manager.key] = replace(manager, fields=rest)
                continue
            manager = replace(manager, time=same.time)
        kept[manager.key] = manager
    for manager in left.values():
        taken = replace(manager, api_version=api_version, fields=here)
        kept[taken.key] = taken
    return encode(kept)
