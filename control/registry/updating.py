"""Changing an object: compare-and-swap on the newest state, with everything a write goes through in between.

Who lost a race tries again on the state that won, or is told of the conflict where they named a resourceVersion. An update
that takes away the last thing that held a marked object deletes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from control.admission.plugin import Attributes
from control.registry import deletion, metadata
from control.registry.context import Allocation, Change, Context, Written
from control.registry.managed import track
from control.registry.storing import always_status, encode, landed, merge_problems, storage_error, ttl
from control.registry.strategy import Finish, Strategy
from control.storage import codec
from control.storage.entry import Entry
from control.storage.store import KeyNotFound, RevisionConflict, StoreError
from kube import errors
from kube.resources import Resource

if TYPE_CHECKING:
    from control.registry.registry import Registry

Object = dict[str, Any]
_SILENT = frozenset({"status", "binding"})
"""Subresources through which no generation rises and nothing is handed out."""


async def update(
    registry: Registry,
    context: Context,
    resource: Resource,
    namespace: str,
    name: str,
    change: Change,
    *,
    subresource: str = "",
    create_missing: bool | None = None,
    admit_as: str | None = None,
) -> Written:
    """Change an object with `change`, again and again until nobody came between; raises 404, 409, 422.

    `subresource` "status" keeps all but status; another one admits under its name but writes the whole object.
    """
    strategy, key = registry.strategy(resource), resource.key(namespace, name)
    if create_missing is None:
        create_missing = strategy.allow_create_on_update and not subresource
    entry = registry.cached(resource).get(key)
    while True:
        if entry is None:
            if not create_missing:
                raise errors.not_found(resource.group, resource.plural, name)
            obj = await change(None)
            obj.setdefault("metadata", {})["name"] = name
            obj["metadata"].pop("resourceVersion", None)
            return await registry.create(context, resource, namespace, obj)
        try:
            return await _update_once(
                registry, context, strategy, entry, namespace, name, change, subresource, admit_as
            )
        except RevisionConflict as conflict:
            current = conflict.current
            entry = registry.cached(resource).entry(key, current.value, current.revision)
        except KeyNotFound:
            entry = None


async def _update_once(
    registry: Registry,
    context: Context,
    strategy: Strategy,
    entry: Entry,
    namespace: str,
    name: str,
    change: Change,
    subresource: str,
    admit_as: str | None,
) -> Written:
    resource = strategy.resource
    old = await strategy.read(entry)
    obj = await change(await strategy.read(entry))
    obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
    meta, old_meta = obj.setdefault("metadata", {}), old["metadata"]
    _check_revision(strategy, meta, entry, name)
    if meta.get("uid") and meta["uid"] != old_meta.get("uid"):
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old_meta.get('uid')}"
        raise errors.conflict(resource.group, resource.plural, name, why)
    if resource.namespaced:
        meta.setdefault("namespace", namespace)
    metadata.carry_over(meta, old_meta)
    strategy.default(obj)
    if subresource != "binding":
        part = subresource if admit_as is None else admit_as
        track(resource, obj, old, context.field_manager, context.operation, part, registry.clock.now())
    attributes = Attributes(
        resource,
        "UPDATE",
        context.user,
        namespace,
        name,
        subresource if admit_as is None else admit_as,
        obj,
        old,
        context.options,
        context.dry_run,
        context.warnings,
        context.annotations,
        context.requested,
    )
    await registry.admission.admit(attributes)
    if subresource:
        strategy.prepare_subresource(subresource, obj, old)
    else:
        strategy.prepare_update(obj, old)
    always_status(resource, obj)
    strategy.default(obj)
    if strategy.keeps_generation and subresource not in _SILENT and strategy.counts(obj, old):
        meta["generation"] = (old_meta.get("generation") or 0) + 1
    finish: Finish | None = None
    if subresource not in _SILENT:
        finish = await strategy.allocate(obj, old, Allocation(registry, context))
    stored = False
    try:
        problems = metadata.validate_update(resource, meta, old_meta, strategy.name_errors)
        if subresource:
            merge_problems(problems, strategy.validate_subresource(subresource, obj, old))
        else:
            merge_problems(problems, strategy.validate_update(obj, old))
        if context.requested is not None and not subresource:
            merge_problems(problems, strategy.validate_requested(obj, old, context.requested))
        if problems:
            raise errors.invalid(resource.group, resource.kind, name, problems)
        context.warnings += strategy.warnings(obj, old)
        await registry.admission.validate(attributes)
        meta["resourceVersion"] = old_meta["resourceVersion"]
        written = await _store_changed(registry, context, strategy, entry, obj, old)
        stored = not context.dry_run
        return written
    finally:
        if finish is not None:
            await finish(stored)


async def _store_changed(
    registry: Registry, context: Context, strategy: Strategy, entry: Entry, obj: Object, old: Object
) -> Written:
    resource = strategy.resource
    if obj == old and not strategy.stale(entry):
        return Written(entry.data if strategy.stored_as_served else codec.with_revision(encode(obj), entry.revision))
    value = encode(obj)
    if context.dry_run:
        return Written(codec.with_revision(value, entry.revision))
    try:
        if _gone(resource, obj, old):
            item = await landed(registry, await registry.store.delete(entry.key, entry.revision))
            await strategy.release(obj, Allocation(registry, context))
            return Written(codec.with_revision(value, item.revision))
        stored = value if strategy.stored_as_served else encode(await strategy.to_stored(obj))
        item = await registry.store.update(entry.key, stored, entry.revision, ttl(registry, resource))
    except (RevisionConflict, KeyNotFound):
        raise
    except StoreError as error:
        raise storage_error(error) from error
    await landed(registry, item)
    return Written(codec.with_revision(value, item.revision))


def _check_revision(strategy: Strategy, meta: Object, entry: Entry, name: str) -> None:
    given, resource = meta.get("resourceVersion"), strategy.resource
    if not given or given == "0":
        if not strategy.allow_unconditional_update:
            zero, why = errors.Unsigned(0), "must be specified for an update"
            problem = errors.invalid_value("metadata.resourceVersion", zero, why)
            raise errors.invalid(resource.group, resource.kind, name, [problem])
    elif given != str(entry.revision):
        raise errors.conflict(resource.group, resource.plural, name, errors.MODIFIED)


def _gone(resource: Resource, obj: Object, old: Object) -> bool:
    """Say whether an update took away the last thing that held a marked object."""
    if not deletion.ready_to_go(obj["metadata"]):
        return False
    if resource.target == "namespaces" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return bool(old["metadata"].get("deletionTimestamp"))
