"""Deleting an object: at once, marked for later, or nothing to do, as `control.registry.deletion_plan` plans it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime

from control.auth.user import UserInfo
from control.event_loop.pacing import TimeSlice
from control.event_loop.weight import weight
from control.interfaces.admission import Attributes
from control.registry import deletion_plan, metadata
from control.registry.context import SERVER, Context, Written
from control.registry.deletion_plan import DeleteOptions
from control.registry.outcome import carry_out, delete_stored, newest
from control.registry.registry import Registry
from control.registry.storing import encode, storage_error, wait_until_cached
from control.storage import codec
from control.storage.entry import Entry
from control.storage.store import KeyNotFound, RevisionConflict, Store, StoreError
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource, by_path


class Release:
    """Access of a strategy to the request and other objects while it releases allocations."""

    def __init__(self, registry: Registry, context: Context) -> None:
        self._registry, self._context = registry, context

    @property
    def user(self) -> UserInfo:
        return self._context.user

    @property
    def dry_run(self) -> bool:
        return self._context.dry_run

    @property
    def store(self) -> Store:
        return self._registry.store

    @property
    def now(self) -> datetime:
        return self._registry.clock.now()

    async def current(self) -> None:
        await self._registry.cache.wait_current()

    def find(self, group: str, version: str, plural: str, namespace: str, name: str) -> Object | None:
        resource = by_path(group, version, plural)
        assert resource is not None
        entry = self._registry.peek(resource, namespace, name)
        return None if entry is None else entry.obj

    def entries(self, group: str, version: str, plural: str) -> Sequence[Entry]:
        resource = by_path(group, version, plural)
        assert resource is not None
        return self._registry.cached(resource).list().entries

    def objects(self, group: str, version: str, plural: str) -> Iterable[Object]:
        return [entry.obj for entry in self.entries(group, version, plural)]

    async def delete(self, group: str, version: str, plural: str, namespace: str, name: str) -> None:
        resource = by_path(group, version, plural)
        assert resource is not None
        with contextlib.suppress(KeyNotFound, StatusError):
            await delete(self._registry, Context(SERVER), resource, namespace, name, DeleteOptions(grace_period=0))


async def delete(
    registry: Registry, context: Context, resource: Resource, namespace: str, name: str, options: DeleteOptions
) -> tuple[Written | None, bool, Object]:
    """Delete an object or mark it for deletion. Returns (what to show or None, whether it is gone, the object)."""
    work = _delete(registry, context, resource, namespace, name, options)
    return await (carry_out(registry, work) if registry.strategy(resource).allocates else work)


async def _delete(
    registry: Registry, context: Context, resource: Resource, namespace: str, name: str, options: DeleteOptions
) -> tuple[Written | None, bool, Object]:
    strategy, key = registry.strategy(resource), resource.key(namespace, name)
    entry, current = registry.cached(resource).get(key), False
    admitted: int | None = None  # the revision that admission was shown
    time_slice = TimeSlice()
    while True:
        if entry is None and not current:
            entry, current = await newest(registry, resource, key), True
        if entry is None:
            raise errors.not_found(resource.group, resource.plural, name)
        obj = await strategy.read(entry)
        try:
            metadata.precondition(resource, obj["metadata"], options.preconditions)
        except StatusError:
            if current:
                raise
            entry, current = await newest(registry, resource, key), True
            continue
        if not context.admitted and admitted != entry.revision:
            # Again where another object, or another state of it, has come in between.
            await time_slice.step(len(entry.data))
            attributes = Attributes(
                resource,
                "DELETE",
                context.user,
                namespace,
                name,
                old=entry.obj if strategy.stored_as_served else await strategy.read(entry),
                options=context.options,
                dry_run=options.dry_run,
                warnings=context.warnings,
                annotations=context.annotations,
                requested=context.requested,
                size=weight(entry.data),
            )
            await registry.admission.admit(attributes)
            await registry.admission.validate(attributes)
            admitted = entry.revision
        outcome = strategy.plan_deletion(obj, registry.clock.now())
        if outcome is None:
            strategy.prepare_delete(obj, registry.clock.now())
            grace = strategy.deletion_grace(obj, options.grace_period)
            outcome = deletion_plan.plan(
                obj["metadata"],
                options,
                grace,
                registry.clock.now(),
                orphans=strategy.orphans_dependents,
                has_dependents=strategy.has_dependents,
            )
        if (outcome == "pending" or options.dry_run) and not current:
            # Nothing is written, so the store does not compare revisions.
            fresh, current = await newest(registry, resource, key), True
            if fresh is None or fresh.revision != entry.revision:
                entry = fresh
                continue
        try:
            if outcome == "pending":
                return Written(entry.data), False, obj
            await time_slice.step(len(entry.data))
            if options.dry_run:
                return Written(codec.with_revision(codec.encode(obj), entry.revision)), outcome == "delete", obj
            if outcome == "mark":
                value = encode(obj)
                stored = value if strategy.stored_as_served else encode(await strategy.to_stored(obj))
                item = await registry.store.update(key, stored, entry.revision, strategy.ttl)
                await wait_until_cached(registry, item)
                return Written(codec.with_revision(value, item.revision)), False, obj
            item = await wait_until_cached(registry, await delete_stored(registry, entry))
        except RevisionConflict as conflict:
            found = conflict.current
            entry, current = registry.cached(resource).entry(key, found.value, found.revision), True
            continue
        except KeyNotFound:
            entry, current = None, True
            continue
        except StoreError as error:
            raise storage_error(error) from error
        await strategy.release(obj, Release(registry, context))
        shown = Written(codec.with_revision(item.value, item.revision)) if strategy.returns_deleted else None
        return shown, True, obj
