"""Compare-and-swap on the newest state of an object, which updates and the server's own changes share.

A write that lost a race is retried on the state that won. An object that is marked for deletion is deleted by the write that
removes its last finalizer.
"""

from __future__ import annotations

from typing import Protocol

from control.event_loop import offload
from control.registry import deletion_plan
from control.registry.context import Change, Context, Written
from control.registry.creation import Allocation
from control.registry.managed import keep_times
from control.registry.outcome import OutcomeUnknown, Superseded, delete_stored, newest, settle
from control.registry.registry import Registry
from control.registry.storing import encode, storage_error, wait_until_cached
from control.registry.strategy import Strategy
from control.storage import codec
from control.storage.entry import Entry
from control.storage.store import KeyNotFound, RevisionConflict, StoreError, Unavailable
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object, identical
from kube.resources import Resource


class Attempt(Protocol):
    """Writes a change of a state (None if there is no object); `current`: the state was just read from the store."""

    async def __call__(self, entry: Entry | None, *, current: bool) -> Written: ...


async def on_newest(registry: Registry, resource: Resource, key: str, attempt: Attempt) -> Written:
    """Return what `attempt` writes, which is called again with the newest state if the one that it had was not."""
    entry, current = registry.cached(resource).get(key), False
    while True:
        if entry is None and not current:
            entry, current = await newest(registry, resource, key), True
        try:
            return await attempt(entry, current=current)
        except RevisionConflict as conflict:
            found = conflict.current
            entry, current = registry.cached(resource).entry(key, found.value, found.revision), True
        except KeyNotFound:
            entry, current = None, True
        except Superseded as superseded:
            entry, current = superseded.entry, True
        except StatusError as error:
            # The change may be refused because of an outdated state (origStateIsCurrent upstream). A write whose outcome is
            # unknown may have taken effect: it must not be repeated.
            if current or isinstance(error, OutcomeUnknown):
                raise
            fresh = await newest(registry, resource, key)
            if fresh is not None and entry is not None and fresh.revision == entry.revision:
                raise
            entry, current = fresh, True


async def change_stored(
    registry: Registry, context: Context, resource: Resource, namespace: str, name: str, change: Change
) -> Written:
    """Change a stored object with `change`; raises 404 if there is none, and what `change` raises.

    Without defaults, validation, admission and managedFields (upstream: storage.GuaranteedUpdate): for changes that the
    server makes itself, to objects that are not being deleted.
    """
    strategy, key = registry.strategy(resource), resource.key(namespace, name)

    async def attempt(entry: Entry | None, *, current: bool) -> Written:
        if entry is None:
            raise errors.not_found(resource.group, resource.plural, name)
        obj = await change(await read(strategy, entry, context.user.name))
        if context.dry_run and not current:
            await _check_newest(registry, resource, entry)
        return await _store(registry, context, strategy, entry, obj)

    return await on_newest(registry, resource, key, attempt)


async def read(strategy: Strategy, entry: Entry, user: str) -> Object:
    """Return a stored object to change; a large one is decoded outside the event loop."""
    if len(entry.data) < offload.LARGE or not strategy.stored_as_served:
        return await strategy.read(entry)
    return await offload.apart(user, codec.decode, entry.data)


async def store_changed(
    registry: Registry,
    context: Context,
    strategy: Strategy,
    entry: Entry,
    obj: Object,
    old: Object,
    *,
    current: bool,
) -> Written:
    """Store a changed object, or delete it if it has no finalizer left; raises Superseded, RevisionConflict, KeyNotFound."""
    resource = strategy.resource
    keep_times(obj, old)
    unchanged = identical(obj, old) and not strategy.stale(entry)
    if (unchanged or context.dry_run) and not current:  # nothing is written, so the store does not compare revisions
        await _check_newest(registry, resource, entry)
    if unchanged:
        data = entry.data if strategy.stored_as_served else codec.with_revision(encode(obj), entry.revision)
        return _written(data, obj, entry.revision)
    if _gone(strategy, obj, old) and not context.dry_run:
        value = encode(obj)
        item = await wait_until_cached(registry, await delete_stored(registry, entry))
        await strategy.release(obj, Allocation(registry, context))
        return _written(codec.with_revision(value, item.revision), obj, item.revision)
    return await _store(registry, context, strategy, entry, obj)


async def _check_newest(registry: Registry, resource: Resource, entry: Entry) -> None:
    """Raise Superseded unless a state is the newest."""
    fresh = await newest(registry, resource, entry.key)
    if fresh is None or fresh.revision != entry.revision:
        raise Superseded(fresh)


async def _store(registry: Registry, context: Context, strategy: Strategy, entry: Entry, obj: Object) -> Written:
    """Store the next state of an object, except in a dry run; raises RevisionConflict, KeyNotFound, StatusError."""
    value = encode(obj)
    if context.dry_run:
        return Written(codec.with_revision(value, entry.revision))
    stored = b""
    try:
        stored = value if strategy.stored_as_served else encode(await strategy.to_stored(obj))
        item = await registry.store.update(entry.key, stored, entry.revision, strategy.ttl)
    except (RevisionConflict, KeyNotFound):
        raise
    except Unavailable as error:
        written = stored
        settled = await settle(registry, entry.key, lambda found: found is not None and found.value == written, error)
        assert settled is not None
        item = settled
    except StoreError as error:
        raise storage_error(error) from error
    await wait_until_cached(registry, item)
    return _written(codec.with_revision(value, item.revision), obj, item.revision)


def _written(data: bytes, obj: Object, revision: int) -> Written:
    meta = obj["metadata"]
    return Written(data, name=meta["name"], uid=meta.get("uid", ""), revision=revision)


def _gone(strategy: Strategy, obj: Object, old: Object) -> bool:
    """Return whether an update removed the last finalizer of an object that is marked for deletion."""
    if not deletion_plan.ready_to_go(obj["metadata"]) or strategy.blocks_deletion(obj):
        return False
    return bool(old["metadata"].get("deletionTimestamp"))
