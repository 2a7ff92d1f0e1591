"""Records writes in metadata.managedFields: the manager of each field, for server-side apply.

`control.patch.apply` computes the entries. An apply has already computed its own; fields that admission and defaults change
after it have no owner, as upstream.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.patch.apply import track_update
from control.patch.schema import Node
from control.registry.served import served
from kube.json_object import Object, identical
from kube.resources import Resource

STATUS = frozenset({"status"})
NOTHING: frozenset[str] = frozenset()
_IDENTITY = ("manager", "operation", "apiVersion", "fieldsType", "subresource")


def reset_fields(resource: Resource, subresource: str) -> frozenset[str]:
    """Return the top-level fields that an endpoint resets, which have no owner through it."""
    if subresource == "status":
        return frozenset({"spec"})
    return STATUS if not subresource and "status" in resource.subresources else NOTHING


def shape_of(resource: Resource) -> Node:
    """Return how a resource's objects merge, by their type or by their schema."""
    return served(resource).shape


def track(
    resource: Resource, obj: Object, old: Object | None, manager: str, operation: str, subresource: str, now: datetime
) -> None:
    """Record who changed what between `old` and `obj` in the new object's managedFields."""
    if operation == "Apply":
        return
    metadata = obj["metadata"]
    skip = reset_fields(resource, subresource)
    entries = track_update(old, obj, manager or "unknown", subresource, shape_of(resource), now, skip)
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def keep_times(obj: Object, old: Object) -> None:
    """Keep the times of managedFields if nothing else differs between `old` and `obj`, which is then not written.

    An apply of the same configuration has a new time where the object is stored in another form than it is applied in, for
    example with defaults. Upstream: IgnoreManagedFieldsTimestampsTransformer; here also if the entries' order differs.
    """
    entries, before = (each["metadata"].get("managedFields") for each in (obj, old))
    if not entries or not before or entries == before or _timeless(entries) != _timeless(before):
        return
    if identical({**obj, "metadata": {**obj["metadata"], "managedFields": before}}, old):
        obj["metadata"]["managedFields"] = before


def _timeless(entries: list[Object]) -> dict[tuple[Any, ...], Any]:
    """Return what each entry has besides its time, by what identifies it."""
    return {tuple(entry.get(name) for name in _IDENTITY): entry.get("fieldsV1") for entry in entries}
