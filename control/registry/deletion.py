"""Deleting an object: at once, marked for later, or nothing to do, as `control.registry.deletion_plan` plans it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from control.auth.user import UserInfo
from control.event_loop.pacing import TimeSlice
from control.event_loop.weight import weight
from control.registry import deletion_plan, metadata
from control.registry.context import SERVER, Context, Written
from control.registry.deletion_plan import DeleteOptions
from control.registry.outcome import Superseded, carry_out, delete_stored, newest
from control.registry.registry import Registry
from control.registry.storing import encode, storage_error, wait_until_cached
from control.registry.strategy import Strategy
from control.storage import codec
from control.storage.entry import Entry
from control.storage.store import Item, KeyNotFound, RevisionConflict, Store, StoreError
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource, by_path

Result = tuple[Written | None, bool, Object]
"""The object or Status to return (None: a Status), whether the object is gone, and the object."""


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


@dataclass(slots=True)
class _Deletion:
    """A request to delete an object, through all its attempts."""

    registry: Registry
    context: Context
    strategy: Strategy
    namespace: str
    name: str
    options: DeleteOptions
    time_slice: TimeSlice = field(default_factory=TimeSlice)
    admitted: int | None = None
    """Revision of the state with which admission was called."""


async def delete(
    registry: Registry, context: Context, resource: Resource, namespace: str, name: str, options: DeleteOptions
) -> Result:
    """Delete an object or mark it for deletion; raises 404, 409, and admission's error."""
    deletion = _Deletion(registry, context, registry.strategy(resource), namespace, name, options)
    work = _delete(deletion)
    return await (carry_out(registry, work) if deletion.strategy.allocates else work)


async def _delete(deletion: _Deletion) -> Result:
    """Delete the newest state of an object."""
    registry, resource = deletion.registry, deletion.strategy.resource
    key = resource.key(deletion.namespace, deletion.name)
    entry, current = registry.cached(resource).get(key), False
    while True:
        if entry is None and not current:
            entry, current = await newest(registry, resource, key), True
        if entry is None:
            raise errors.not_found(resource.group, resource.plural, deletion.name)
        try:
            return await _delete_once(deletion, entry, current=current)
        except Superseded as superseded:
            entry, current = superseded.entry, True


async def _delete_once(deletion: _Deletion, entry: Entry, *, current: bool) -> Result:
    """Delete a state of an object; `current` means that it was just read from the store. Raises Superseded."""
    registry, context, options = deletion.registry, deletion.context, deletion.options
    strategy = deletion.strategy
    resource = strategy.resource
    obj = await strategy.read(entry)
    try:
        metadata.precondition(resource, obj["metadata"], options.preconditions)
    except StatusError:
        if current:
            raise
        raise Superseded(await newest(registry, resource, entry.key)) from None
    if not context.admitted and deletion.admitted != entry.revision:
        # Again where another object, or another state of it, has come in between.
        await _admit(deletion, entry)
    outcome = _plan(deletion, obj)
    if (outcome == "pending" or options.dry_run) and not current:
        # Nothing is written, so the store does not compare revisions.
        fresh = await newest(registry, resource, entry.key)
        if fresh is None or fresh.revision != entry.revision:
            raise Superseded(fresh)
    if outcome == "pending":
        return Written(entry.data, revision=entry.revision), False, obj
    await deletion.time_slice.step(len(entry.data))
    if options.dry_run:
        return Written(codec.with_revision(codec.encode(obj), entry.revision)), outcome == "delete", obj
    item, value = await _write(deletion, entry, obj, outcome)
    if outcome == "mark":
        return Written(codec.with_revision(value, item.revision), revision=item.revision), False, obj
    await strategy.release(obj, Release(registry, context))
    data = codec.with_revision(codec.shallow(item.value), item.revision)
    shown = Written(data, revision=item.revision) if strategy.returns_deleted else None
    return shown, True, obj


async def _admit(deletion: _Deletion, entry: Entry) -> None:
    await deletion.time_slice.step(len(entry.data))
    attributes = deletion.context.attributes(
        deletion.strategy.resource,
        "DELETE",
        deletion.namespace,
        deletion.name,
        old=entry.obj if deletion.strategy.stored_as_served else await deletion.strategy.read(entry),
        size=weight(entry.data),
    )
    await deletion.registry.admission.admit(attributes)
    await deletion.registry.admission.validate(attributes)
    deletion.admitted = entry.revision


def _plan(deletion: _Deletion, obj: Object) -> deletion_plan.Outcome:
    """Decide the outcome, and change the object accordingly."""
    strategy, options, now = deletion.strategy, deletion.options, deletion.registry.clock.now()
    outcome = strategy.plan_deletion(obj, now)
    if outcome is not None:
        return outcome
    strategy.prepare_delete(obj, now)
    grace = strategy.deletion_grace(obj, options.grace_period)
    return deletion_plan.plan(
        obj["metadata"],
        options,
        grace,
        now,
        orphans=strategy.orphans_dependents,
        has_dependents=strategy.has_dependents,
    )


async def _write(deletion: _Deletion, entry: Entry, obj: Object, outcome: deletion_plan.Outcome) -> tuple[Item, bytes]:
    """Delete the object or store its mark; return what the store then has, and the marked object as it is served.

    Raises Superseded.
    """
    registry, strategy, value = deletion.registry, deletion.strategy, b""
    try:
        if outcome == "mark":
            value = encode(obj)
            stored = value if strategy.stored_as_served else encode(await strategy.to_stored(obj))
            item = await registry.store.update(entry.key, stored, entry.revision, strategy.ttl)
        else:
            item = await delete_stored(registry, entry)
        return await wait_until_cached(registry, item), value
    except RevisionConflict as conflict:
        found = conflict.current
        raise Superseded(registry.cached(strategy.resource).entry(entry.key, found.value, found.revision)) from None
    except KeyNotFound:
        raise Superseded(None) from None
    except StoreError as error:
        raise storage_error(error) from error
