"""Changing an object by a request: defaults, admission, allocations and validation between reading and storing it.

An update that lost a race is retried on the state that won, or refused if the request has a resourceVersion
(compare_and_swap.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

import msgspec

from control.auth.user import UserInfo
from control.event_loop import offload
from control.event_loop.weight import weight
from control.interfaces.admission import Attributes
from control.registry import creation, disabled_fields, encoded, metadata
from control.registry.changes import IMMUTABLE
from control.registry.compare_and_swap import on_newest, read, store_changed
from control.registry.context import Change, Context, Projection, Written
from control.registry.creation import Allocation
from control.registry.managed import track
from control.registry.outcome import OutcomeUnknown, carry_out
from control.registry.ratcheting import problems_of_change
from control.registry.registry import Registry
from control.registry.storing import always_status, merge_problems
from control.registry.strategy import Strategy
from control.registry.strategy_context import Finish, Outcome
from control.storage.entry import Entry
from kube import errors
from kube.json_object import Object
from kube.resources import Resource


@dataclass(slots=True)
class _Update:
    """A request to change an object, through all its attempts."""

    registry: Registry
    context: Context
    strategy: Strategy
    namespace: str
    name: str
    change: Change
    subresource: str
    projection: Projection | None
    replaces: bool

    @property
    def part(self) -> str:
        """The subresource that admission and managedFields show."""
        return self.subresource if self.projection is None else self.projection.subresource


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
    projection: Projection | None = None,
    replaces: bool = False,
) -> Written:
    """Change an object with `change`, and retry conflicts; raises 404, 409, 422.

    `subresource` "status" keeps all but status; another one admits under its name but writes the whole object. A
    `projection` is admitted in place of the object, and what admission changes of it is written back. `replaces` means
    that `change` uses nothing of the object that it is given, which is then not decoded for it.
    """
    strategy, key = registry.strategy(resource), resource.key(namespace, name)
    if create_missing is None:
        create_missing = strategy.allow_create_on_update and not subresource and projection is None
    update = _Update(registry, context, strategy, namespace, name, change, subresource, projection, replaces)

    async def attempt(entry: Entry | None, *, current: bool) -> Written:
        if entry is None:
            if not create_missing:
                raise errors.not_found(resource.group, resource.plural, name)
            await context.check_create()
            if context.options:
                context.options = context.options | {"kind": "CreateOptions"}
            obj = await change(None)
            obj.setdefault("metadata", {})["name"] = name
            obj["metadata"].pop("resourceVersion", None)
            return await creation.create(registry, context, resource, namespace, obj)
        work = _update_once(update, entry, current=current)
        return await (carry_out(registry, work) if strategy.allocates else work)

    return await on_newest(registry, resource, key, attempt)


async def _update_once(update: _Update, entry: Entry, *, current: bool) -> Written:
    """Change a state of an object; `current` means that it was just read from the store."""
    obj, old = await _changed(update, entry)
    attributes = await _admit(update, obj, old)
    context, strategy = update.context, update.strategy
    await offload.run(context.user.name, context.size, _prepare, strategy, obj, old, update.subresource)
    finish: Finish | None = None
    if update.subresource != "status":
        finish = await strategy.allocate(obj, old, Allocation(update.registry, context))
    outcome = Outcome.NOT_STORED
    try:
        await _validate(update, entry, obj, old, attributes)
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        written = await store_changed(update.registry, context, strategy, entry, obj, old, current=current)
        if not context.dry_run:
            outcome = Outcome.STORED
        return written
    except OutcomeUnknown:
        outcome = Outcome.UNKNOWN
        raise
    finally:
        if finish is not None:
            await finish(outcome)


async def _changed(update: _Update, entry: Entry) -> tuple[Object, Object]:
    """Return the changed object with defaults, system fields and managedFields, and the object as it was."""
    context, strategy = update.context, update.strategy
    resource, user = strategy.resource, context.user.name
    size = context.size = max(context.size, weight(entry.data))
    old = await read(strategy, entry, user)
    obj = await update.change(old if update.replaces else await read(strategy, entry, user))
    obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
    meta, old_meta = obj.setdefault("metadata", {}), old["metadata"]
    _check_revision(strategy, meta, entry, update.name)
    if meta.get("uid") and meta["uid"] != old_meta.get("uid"):
        # Only an object that is sent whole has its UID as a precondition (upstream: rest.DefaultUpdatedObjectInfo).
        if not update.replaces:
            wrong = errors.invalid_value("metadata.uid", meta["uid"], IMMUTABLE)
            raise errors.invalid(resource.group, resource.kind, update.name, [wrong])
        metadata.precondition(resource, old_meta, {"uid": meta["uid"]})
    if resource.namespaced:
        meta.setdefault("namespace", update.namespace)
    metadata.carry_over(meta, old_meta)
    await offload.run(user, size, _default, context, strategy, obj, old, update.part, update.registry.clock.now())
    return obj, old


async def _admit(update: _Update, obj: Object, old: Object) -> Attributes:
    """Call mutating admission with the object, or with its projection; return what validating admission is called with."""
    context, projection = update.context, update.projection
    shown, shown_old = obj, old
    if projection is not None:
        shown, shown_old = await offload.run(context.user.name, context.size, _projected, projection, obj, old)
    attributes = context.attributes(
        update.strategy.resource,
        "UPDATE",
        update.namespace,
        update.name,
        subresource=update.part,
        obj=shown,
        old=shown_old,
        size=context.size,
    )
    if not context.admitted:
        await update.registry.admission.admit(attributes)
        if projection is not None:
            assert attributes.obj is not None
            projection.write(obj, attributes.obj)
        if attributes.reinvocation.wanted:  # a webhook or a policy changed the object
            context.weigh(obj)
    return attributes


def _projected(projection: Projection, obj: Object, old: Object) -> tuple[Object, Object]:
    return projection.read(obj), projection.read(old)


async def _validate(update: _Update, entry: Entry, obj: Object, old: Object, attributes: Attributes) -> None:
    """Validate the object, a large one in the helper process, and call validating admission."""
    registry, context, strategy, subresource = update.registry, update.context, update.strategy, update.subresource
    user, size, name = context.user.name, context.size, update.name
    data = msgspec.json.encode(obj) if size >= offload.LARGE else b""
    apart = max(len(data), len(entry.data)) >= offload.LARGE  # few bytes are the thread's: a process must start
    if apart and encoded.alone(strategy) and context.requested is None:
        known = encoded.named(strategy.resource, registry.settings)
        given = data, entry.data, subresource, name
        here = partial(validate_encoded, strategy, *given)
        context.warnings += await offload.by_helper(user, "validate_update", known, *given, instead=here)
    else:
        await offload.evaluate(user, size, validate, context, strategy, obj, old, subresource, name)
    if not context.admitted:
        if update.projection is not None:
            attributes.obj = await offload.run(user, size, update.projection.read, obj)
        await registry.admission.validate(attributes)


def _default(context: Context, strategy: Strategy, obj: Object, old: Object, subresource: str, now: datetime) -> None:
    strategy.default(obj)
    track(strategy.resource, obj, old, context.field_manager, context.operation, subresource, now)


def _prepare(strategy: Strategy, obj: Object, old: Object, subresource: str) -> None:
    if subresource:
        strategy.prepare_subresource(subresource, obj, old)
    else:
        strategy.prepare_update(obj, old)
    disabled_fields.drop(strategy, obj, old)
    always_status(strategy.resource, obj)
    strategy.default(obj)
    if strategy.keeps_generation and subresource != "status" and strategy.raises_generation(obj, old):
        obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1


def validate(context: Context, strategy: Strategy, obj: Object, old: Object, subresource: str, name: str) -> None:
    """Raise 422 for an object that is wrong, and warn of what is doubtful."""
    resource = strategy.resource
    problems = metadata.validate_update(resource, obj["metadata"], old["metadata"], strategy.name_errors)
    merge_problems(problems, problems_of_change(strategy, obj, old, subresource))
    if context.requested is not None and not subresource:
        merge_problems(problems, strategy.validate_requested(obj, old, context.requested))
    if problems:
        raise errors.invalid(resource.group, resource.kind, name, problems)
    context.warnings += strategy.subresource_warnings(subresource, obj, old)


def validate_encoded(strategy: Strategy, data: bytes, old: bytes, subresource: str, name: str) -> list[str]:
    """Validate an object given as JSON, as `validate` does; return warnings."""
    context = Context(UserInfo(""))
    validate(context, strategy, msgspec.json.decode(data), msgspec.json.decode(old), subresource, name)
    return context.warnings


def _check_revision(strategy: Strategy, meta: Object, entry: Entry, name: str) -> None:
    given, resource = meta.get("resourceVersion"), strategy.resource
    if not given or given == "0":
        if not strategy.allow_unconditional_update:
            zero, why = errors.Unsigned(0), "must be specified for an update"
            problem = errors.invalid_value("metadata.resourceVersion", zero, why)
            raise errors.invalid(resource.group, resource.kind, name, [problem])
    elif given != str(entry.revision):
        raise errors.conflict(resource.group, resource.plural, name, errors.MODIFIED)
