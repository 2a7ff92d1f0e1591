"""Support for controllers in the server: change notifications, and writes that tolerate concurrent ones.

Several servers on one store reconcile the same objects; all writes are compare-and-swap, and concurrent creations
and deletions are no errors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import msgspec

from control.registry import creation, updating
from control.registry.context import SERVER, Context
from control.registry.registry import Registry
from control.storage import list_watch
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource


def stored(registry: Registry, resource: Resource) -> dict[str, Object]:
    """Return a cluster-scoped resource's objects by name; they are read-only."""
    return {entry.obj["metadata"]["name"]: entry.obj for entry in registry.cached(resource).list().entries}


async def follow(registry: Registry, resource: Resource, changed: Callable[[Object], None]) -> None:
    """Call `changed` with each object that changes, until cancelled; after a gap with all there are.

    Of a large object only the values are decoded that it reads by name.
    """
    async with aclosing(list_watch.list_and_watch(registry.cache, registry.cached(resource))) as updates:
        async for update in updates:
            for watch_event in update.watch_events:
                changed(watch_event.entry.parts())


async def create(registry: Registry, resource: Resource, obj: Object) -> None:
    """Create a cluster-scoped object if it is not there."""
    try:
        await creation.create(registry, Context(SERVER), resource, "", msgspec.json.decode(msgspec.json.encode(obj)))
    except StatusError as error:
        if not error.already_exists:
            raise


async def write(registry: Registry, resource: Resource, name: str, parts: Object) -> None:
    """Replace top-level parts of a cluster-scoped object if it is there; raises 409."""

    async def change(old: Object | None) -> Object:
        return {**(old or {}), **parts}

    try:
        await updating.update(registry, Context(SERVER), resource, "", name, change)
    except StatusError as error:
        if not error.not_found:
            raise


async def set_condition(registry: Registry, resource: Resource, name: str, condition: Object) -> None:
    """Set a condition in the status of a cluster-scoped object if it is there.

    The stored object is changed, so that conditions of others are kept. The time of the last transition changes with the status
    of the condition only (upstream: SetAPIServiceCondition, SetFlowSchemaCondition).
    """

    async def change(old: Object | None) -> Object:
        obj = old or {}
        status = obj.get("status") or {}
        conditions = list(status.get("conditions") or ())
        types = [c.get("type") for c in conditions]
        if condition["type"] in types:
            index = types.index(condition["type"])
            before, now = conditions[index], condition
            if before.get("status") == now["status"] and before.get("lastTransitionTime"):
                now = {**now, "lastTransitionTime": before["lastTransitionTime"]}
            conditions[index] = now
        else:
            conditions.append(condition)
        return {**obj, "status": {**status, "conditions": conditions}}

    try:
        await updating.update(registry, Context(SERVER), resource, "", name, change, subresource="status")
    except StatusError as error:
        if not error.not_found:
            raise
