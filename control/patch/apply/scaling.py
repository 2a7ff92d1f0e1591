"""Ownership of a workload's replicas, converted to its Scale: applying a Scale is applying one field of the workload.

Whoever owns the workload's replicas owns those of the Scale while it is applied; what comes of it is carried back: who lost
them keeps the rest of what they own, and who took them owns them in the workload, through the scale subresource. Upstream:
apimachinery's pkg/util/managedfields (ScaleHandler).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from control.patch.apply.fieldset import Set, contains, difference
from control.patch.apply.managers import decode, encode

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
    managers = decode(entries) or {}
    owners = [m for m in managers.values() if contains(m.fields, here)]
    scaled = [replace(m, api_version=SCALE_VERSION, fields=there) for m in owners]
    return encode({m.key: m for m in scaled})


def to_parent(entries: Entries | None, scale: Entries | None, path: Sequence[str], api_version: str) -> Entries:
    """Return a workload's managedFields after its Scale was applied with the managedFields `scale`."""
    here, there = _set(path), _set(REPLICAS)
    left = {
        (m.name, m.operation, m.subresource): m for m in (decode(scale) or {}).values() if contains(m.fields, there)
    }
    kept = {}
    for manager in (decode(entries) or {}).values():
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
