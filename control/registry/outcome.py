"""Outcome of a write: completed even if its request is cancelled, and resolved if the store did not report it.

A request may end (by a timeout, or with its client) while its write is queued; allocations for the write (a Service's
address) must not be released then. Its steps have the request's limit until it has its first effect. And after a failure of
the store during a commit it is unknown whether the commit succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from control.registry.registry import Registry
from control.registry.storing import storage_error
from control.storage import codec
from control.storage.entry import Entry
from control.storage.store import Item, KeyNotFound, RevisionConflict, StoreError, Unavailable
from kube import step_limit
from kube.errors import StatusError
from kube.resources import Resource

T = TypeVar("T")


class OutcomeUnknown(StatusError):
    """It is unknown whether a write took effect; the message is the store's."""


class Superseded(Exception):
    """A state is not the newest any more, so that nothing was written; `entry` is the newest, None if the object is gone."""

    def __init__(self, entry: Entry | None) -> None:
        super().__init__()
        self.entry = entry


async def carry_out(registry: Registry, work: Coroutine[Any, Any, T]) -> T:
    """Return what a write returns; it goes on to its end where the caller is cancelled.

    Its steps are charged to the request, and stopped if they take too long before `step_limit.complete` is called.
    """
    task = asyncio.create_task(step_limit.inherited(work, completes=True), name="write")
    registry.unfinished.add(task)

    def ended(task: asyncio.Task[Any]) -> None:
        registry.unfinished.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone

    task.add_done_callback(ended)
    return await asyncio.shield(task)


async def settle(registry: Registry, key: str, done: Callable[[Item | None], bool], error: Unavailable) -> Item | None:
    """Return what the store holds where that shows that a write took effect; raises OutcomeUnknown elsewhere."""
    with contextlib.suppress(StoreError):
        item = await registry.store.get(key)
        if done(item):
            return item
    refused = storage_error(error)
    raise OutcomeUnknown(refused.code, refused.reason, refused.message) from error


def uid_of(item: Item) -> str | None:
    """Return the UID of a stored object."""
    uid: str | None = codec.decode(item.value)["metadata"].get("uid")
    return uid


async def newest(registry: Registry, resource: Resource, key: str) -> Entry | None:
    """Return an object as the store holds it: the cache may lag behind what another server has acknowledged."""
    cached = registry.cached(resource)
    if await registry.store.current_revision() <= registry.cache.revision:
        return cached.get(key)
    item = await registry.store.get(key)
    return None if item is None else cached.entry(key, item.value, item.revision)


async def delete_stored(registry: Registry, entry: Entry) -> Item:
    """Delete a state from the store; raises RevisionConflict, KeyNotFound, StatusError, OutcomeUnknown.

    A write that is carried out is not stopped from here on: what the object had is released.
    """
    step_limit.complete()
    try:
        return await registry.store.delete(entry.key, entry.revision)
    except (RevisionConflict, KeyNotFound):
        raise
    except Unavailable as error:
        await settle(registry, entry.key, lambda found: found is None, error)
        return Item(entry.key, entry.data, await registry.store.current_revision(), 0)
    except StoreError as error:
        raise storage_error(error) from error
