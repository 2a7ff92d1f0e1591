"""Creation of an object: system fields, defaults, admission, allocation of addresses and ports, validation, and the store."""

from __future__ import annotations

from datetime import datetime

import msgspec

from control.event_loop import offload
from control.registry import deleted_namespaces, disabled_fields, metadata, pod_traces
from control.registry.context import SERVER, Context, Written
from control.registry.deletion import Release
from control.registry.managed import track
from control.registry.outcome import OutcomeUnknown, carry_out, newest, settle, uid_of
from control.registry.ratcheting import problems_of_creation
from control.registry.registry import Registry
from control.registry.storing import always_status, encode, merge_problems, storage_error, wait_until_cached
from control.registry.strategy import Strategy
from control.registry.strategy_context import Outcome
from control.storage import codec
from control.storage.store import KeyExists, StoreError, Unavailable
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource, by_kind

GENERATE_ATTEMPTS = 8


class Allocation(Release):
    """Access of a strategy to the request and other objects while it allocates addresses and ports."""

    @property
    def size(self) -> int:
        return self._context.size

    async def create(self, obj: Object) -> Object:
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        namespace = obj.get("metadata", {}).get("namespace", "")
        return codec.decode((await create(self._registry, Context(SERVER), resource, namespace, obj)).data)


async def create(registry: Registry, context: Context, resource: Resource, namespace: str, obj: Object) -> Written:
    """Store a new object; raises 409 AlreadyExists, 422, or admission's error."""
    base = begin(resource, namespace, obj)
    revised = bool(obj["metadata"].pop("resourceVersion", None))
    pristine = codec.encode(obj) if base else b""
    for attempt in range(GENERATE_ATTEMPTS):
        try:
            work = _create_once(registry, context, resource, namespace, obj, base, revised=revised)
            return await (carry_out(registry, work) if registry.strategy(resource).allocates else work)
        except StatusError as error:
            if not (base and error.already_exists) or attempt == GENERATE_ATTEMPTS - 1:
                raise
            obj = codec.decode(pristine)
            obj["metadata"].pop("resourceVersion", None)
    raise AssertionError


def begin(resource: Resource, namespace: str, obj: Object) -> str:
    """Check an object's namespace, and return its generateName, "" if it has a name."""
    meta = obj.setdefault("metadata", {})
    metadata.match_namespace(resource, meta, namespace)
    return "" if meta.get("name") else meta.get("generateName") or ""


def revision_set() -> StatusError:
    """Return the error for a new object with a resourceVersion."""
    return StatusError(500, "", "resourceVersion should not be set on objects to be created")


async def _create_once(
    registry: Registry, context: Context, resource: Resource, namespace: str, obj: Object, base: str, *, revised: bool
) -> Written:
    strategy, meta = registry.strategy(resource), obj["metadata"]
    await offload.run(context.user.name, context.size, fill, context, strategy, obj, base, registry.clock.now())
    attributes = context.attributes(resource, "CREATE", namespace, meta.get("name", ""), obj=obj, size=context.size)
    await registry.admission.admit(attributes)
    if resource.target == "pods" or attributes.reinvocation.wanted:  # what plugins, webhooks or policies make larger
        context.weigh(obj)
    await offload.run(context.user.name, context.size, prepare, context, strategy, namespace, obj)
    finish = await strategy.allocate(obj, None, Allocation(registry, context))
    outcome = Outcome.NOT_STORED
    try:
        await offload.evaluate(context.user.name, context.size, validate, context, strategy, obj)
        await registry.admission.validate(attributes)
        if revised and not context.dry_run:  # only the store refuses it, as upstream's
            raise revision_set()
        written = await _store_new(registry, context, strategy, namespace, obj)
        if not context.dry_run:
            outcome = Outcome.STORED
        return written
    except OutcomeUnknown:
        outcome = Outcome.UNKNOWN
        raise
    finally:
        if finish is not None:
            await finish(outcome)


def fill(context: Context, strategy: Strategy, obj: Object, base: str, now: datetime) -> None:
    """Set the system fields of a new object, the kind's defaults, and managedFields."""
    meta = obj["metadata"]
    obj["kind"], obj["apiVersion"] = strategy.resource.kind, strategy.resource.api_version
    if base:
        meta["name"] = metadata.generate_name(base)
    metadata.fill_new(meta, now)
    strategy.default(obj)
    # Before admission, as upstream: what plugins add belongs to nobody.
    track(strategy.resource, obj, None, context.field_manager, context.operation, "", now)


def prepare(context: Context, strategy: Strategy, namespace: str, obj: Object) -> None:
    """Drop fields that a create may not set, and set defaults that admission may have omitted.

    Raises 400 if admission changed the object's namespace (BeforeCreate in registry/rest/create.go).
    """
    metadata.match_namespace(strategy.resource, obj["metadata"], namespace)
    context.warnings += strategy.warnings_as_sent(obj)
    strategy.prepare_create(obj)
    disabled_fields.drop(strategy, obj, None)
    always_status(strategy.resource, obj)
    strategy.default(obj)
    if strategy.keeps_generation:
        obj["metadata"]["generation"] = 1


def validate(context: Context, strategy: Strategy, obj: Object) -> None:
    """Raise 422 for an invalid object, and add warnings for suspicious input."""
    resource, meta = strategy.resource, obj["metadata"]
    problems = metadata.validate(resource, meta, strategy.name_errors)
    merge_problems(problems, problems_of_creation(strategy, obj))
    if context.requested is not None:
        merge_problems(problems, strategy.validate_requested(obj, None, context.requested))
    if problems:
        raise errors.invalid(resource.group, resource.kind, meta.get("name", ""), problems)
    context.warnings += strategy.warnings(obj, None)


async def _store_new(registry: Registry, context: Context, strategy: Strategy, namespace: str, obj: Object) -> Written:
    name, value = obj["metadata"]["name"], encode(obj)
    if context.dry_run:
        return await store_nothing(registry, strategy.resource, namespace, name, without_revision(obj))
    stored = value if strategy.stored_as_served else encode(await strategy.to_stored(obj))
    return await store_new(registry, strategy, namespace, name, obj["metadata"]["uid"], value, stored)


async def store_nothing(registry: Registry, resource: Resource, namespace: str, name: str, shown: bytes) -> Written:
    """Return the result of a dry run; raises 409 AlreadyExists."""
    if await newest(registry, resource, resource.key(namespace, name)) is not None:
        raise errors.already_exists(resource.group, resource.plural, name)
    return Written(shown, True)


async def store_new(
    registry: Registry, strategy: Strategy, namespace: str, name: str, uid: str, value: bytes, stored: bytes
) -> Written:
    """Store a new object, served as `value`; raises 409 AlreadyExists, and 404 or 403 if its namespace was deleted."""
    resource, accepted = strategy.resource, deleted_namespaces.accepts(registry, namespace)
    key = resource.key(namespace, name)
    try:
        item = await registry.store.create(key, stored, strategy.ttl)
    except KeyExists as error:
        found = errors.already_exists(resource.group, resource.plural, name)
        if error.current and codec.decode(error.current.value)["metadata"].get("deletionTimestamp"):
            found.message = f"object is being deleted: {found.message}"
        raise found from error
    except Unavailable as error:
        found_item = await settle(registry, key, lambda found: found is not None and uid_of(found) == uid, error)
        assert found_item is not None
        item = found_item
    except StoreError as error:
        raise storage_error(error) from error
    await wait_until_cached(registry, item)
    if accepted:
        await deleted_namespaces.take_back(registry, resource, namespace, name, item)
    if resource.target == "pods":
        pod_traces.created(namespace, name, uid, item.revision)
    return Written(codec.with_revision(value, item.revision), True, name, uid, item.revision)


def without_revision(obj: Object) -> bytes:
    """Return an object without resourceVersion, as the result of a dry run."""
    shown = dict(obj)
    shown["metadata"] = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    return msgspec.json.encode(shown)
