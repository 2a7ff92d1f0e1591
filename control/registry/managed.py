"""Records writes in metadata.managedFields: the manager of each field, for server-side apply.

`control.patch.apply` computes the entries. An apply has already computed its own; fields that admission and defaults change
after it have no owner, as upstream.
"""

from __future__ import annotations

from datetime import datetime

from control.patch.apply import track_update
from control.patch.schema import Node
from control.registry.served import served
from kube.json_object import Object
from kube.resources import Resource

STATUS = frozenset({"status"})
NOTHING: frozenset[str] = frozenset()


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
