"""The one path that every write of every kind takes, from a decoded object to the store, and the reads beside it.

What kinds differ in is asked of their `Strategy`; what all share (system fields, name and namespace rules, optimistic
concurrency, admission in its place, finalizers and grace) happens here. A write works on the newest state in the watch
cache and stores it with compare-and-swap; who lost a race tries again on the state that won, or is told of the conflict
where they named a resourceVersion. The cache is current when a write's caller goes on, so reads see their own writes.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from control.admission.plugin import Attributes
from control.auth.user import UserInfo
from control.registry import deletion, metadata
from control.registry.deletion import DeleteOptions
from control.registry.managed import track
from control.registry.strategies import strategy_for
from control.registry.strategy import Finish, Settings, Strategy
from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.entry import Entry
from control.storage.resource_cache import ResourceCache
from control.storage.store import (
    FutureRevision,
    Item,
    KeyExists,
    KeyNotFound,
    RevisionConflict,
    Store,
    StoreError,
    Unavailable,
)
from kube import errors
from kube.clock import Clock, format_time
from kube.errors import FieldError, StatusError
from kube.resources import RESOURCES, Resource, by_kind, by_path

log = logging.getLogger(__name__)

Object = dict[str, Any]
Change = Callable[[Object | None], Awaitable[Object]]
"""From the object as it is (a copy to keep) to the object as it shall be."""

SERVER = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))
"""The server itself, for what it writes of its own accord."""
EVENT_TTL = 3600
GENERATE_ATTEMPTS = 8
LARGEST_OBJECT = 1536 * 1024
_SILENT = frozenset({"status", "binding"})
"""Subresources through which no generation rises and nothing is handed out."""
_RETURNS_DELETED = frozenset(
    {
        "pods",
        "podtemplates",
        "persistentvolumes",
        "persistentvolumeclaims",
        "resourcequotas",
        "serviceaccounts",
        "services",
    }
)


class Admission(Protocol):
    """The chain of plugins."""

    async def admit(self, attributes: Attributes) -> None: ...
    async def validate(self, attributes: Attributes) -> None: ...


@dataclass(slots=True)
class Context:
    """Who writes and how: what a request says besides the object."""

    user: UserInfo
    dry_run: bool = False
    field_manager: str = ""
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    operation: str = "Update"
    """The managed-fields operation: Update or Apply."""


class Allocation:
    """What a strategy sees of the request and of other objects while it hands out addresses and such."""

    def __init__(self, registry: Registry, context: Context) -> None:
        self._registry, self._context = registry, context

    @property
    def user(self) -> UserInfo:
        return self._context.user

    @property
    def dry_run(self) -> bool:
        return self._context.dry_run

    def objects(self, group: str, version: str, plural: str) -> Iterable[Object]:
        resource = by_path(group, version, plural)
        assert resource is not None
        return [entry.obj for entry in self._registry.cached(resource).list().entries]

    async def create(self, obj: Object) -> Object:
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        namespace = obj.get("metadata", {}).get("namespace", "")
        return codec.decode((await self._registry.create(Context(SERVER), resource, namespace, obj)).data)

    async def delete(self, group: str, version: str, plural: str, namespace: str, name: str) -> None:
        resource = by_path(group, version, plural)
        assert resource is not None
        with contextlib.suppress(KeyNotFound, StatusError):
            await self._registry.delete(Context(SERVER), resource, namespace, name, DeleteOptions(grace_period=0))


@dataclass(slots=True)
class Written:
    """A write's outcome: the object's bytes, and whether it came to be."""

    data: bytes
    created: bool = False


class Registry:
    """All resources over one store and one watch cache."""

    def __init__(
        self,
        store: Store,
        cache: WatchCache,
        admission: Admission,
        clock: Clock,
        settings: Settings | None = None,
        event_ttl: int = EVENT_TTL,
    ) -> None:
        self.store, self.cache, self.admission, self.clock = store, cache, admission, clock
        self.settings, self.event_ttl = settings or Settings(), event_ttl
        self._strategies: dict[Resource, Strategy] = {}
        self._caches: dict[str, ResourceCache] = {}
        for resource in RESOURCES:
            if "list" in resource.verbs and resource.plural != "componentstatuses":
                self.add(resource)

    def add(self, resource: Resource) -> None:
        """Register a resource before the cache runs. The first version in the table is the stored one."""
        prefix = resource.storage_prefix
        if prefix not in self._caches:
            strategy = self.strategy(resource)
            self._caches[prefix] = self.cache.resource(prefix, resource.kind, resource.api_version, strategy.fields)

    def strategy(self, resource: Resource) -> Strategy:
        found = self._strategies.get(resource)
        if found is None:
            found = self._strategies[resource] = strategy_for(resource, self.settings)
        return found

    def cached(self, resource: Resource) -> ResourceCache:
        return self._caches[resource.storage_prefix]

    def caches(self) -> Iterable[ResourceCache]:
        return self._caches.values()

    # -- reads ----------------------------------------------------------------------------------------------------
    def peek(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        """Return what the cache holds of an object."""
        return self._caches[resource.storage_prefix].get(resource.key(namespace, name))

    async def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Return an object as of now; raises 404."""
        await self.cache.wait_current()
        entry = self.peek(resource, namespace, name)
        if entry is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return entry

    # -- create ---------------------------------------------------------------------------------------------------
    async def create(self, context: Context, resource: Resource, namespace: str, obj: Object) -> Written:
        """Store a new object; raises 409 AlreadyExists, 422, or what admission says."""
        meta = obj.setdefault("metadata", {})
        if meta.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        metadata.match_namespace(resource, meta, namespace)
        base = "" if meta.get("name") else meta.get("generateName") or ""
        pristine = codec.encode(obj) if base else b""
        for attempt in range(GENERATE_ATTEMPTS):
            try:
                return await self._create_once(context, resource, namespace, obj, base)
            except StatusError as error:
                if not (base and error.already_exists) or attempt == GENERATE_ATTEMPTS - 1:
                    raise
                obj = codec.decode(pristine)
                obj["metadata"].pop("resourceVersion", None)
        raise AssertionError

    async def _create_once(
        self, context: Context, resource: Resource, namespace: str, obj: Object, base: str
    ) -> Written:
        strategy, meta = self.strategy(resource), obj["metadata"]
        obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
        if base:
            meta["name"] = metadata.generate_name(base)
        metadata.fill_new(meta, self.clock.now())
        strategy.default(obj)
        # Before admission, as upstream: what plugins add belongs to nobody.
        track(resource, obj, None, context.field_manager, context.operation, "", self.clock.now())
        attributes = Attributes(
            resource,
            "CREATE",
            context.user,
            namespace,
            meta.get("name", ""),
            obj=obj,
            options=context.options,
            dry_run=context.dry_run,
            warnings=context.warnings,
        )
        await self.admission.admit(attributes)
        strategy.prepare_create(obj)
        _always_status(resource, obj)
        strategy.default(obj)
        if metadata.keeps_generation(resource):
            meta["generation"] = 1
        finish = await strategy.allocate(obj, None, Allocation(self, context))
        stored = False
        try:
            problems = metadata.validate(resource, meta, strategy.name_errors)
            _merge_problems(problems, strategy.validate(obj))
            if problems:
                raise errors.invalid(resource.group, resource.kind, meta.get("name", ""), problems)
            context.warnings += strategy.warnings(obj, None)
            await self.admission.validate(attributes)
            written = await self._store_new(context, resource, namespace, obj)
            stored = not context.dry_run
            return written
        finally:
            if finish is not None:
                await finish(stored)

    async def _store_new(self, context: Context, resource: Resource, namespace: str, obj: Object) -> Written:
        name = obj["metadata"]["name"]
        value, key = self._encode(obj), resource.key(namespace, name)
        if context.dry_run:
            if self.cached(resource).get(key) is not None:
                raise errors.already_exists(resource.group, resource.plural, name)
            return Written(_without_revision(obj), True)
        try:
            item = await self.store.create(key, value, self._ttl(resource))
        except KeyExists as error:
            found = errors.already_exists(resource.group, resource.plural, name)
            if error.current and codec.decode(error.current.value)["metadata"].get("deletionTimestamp"):
                found.message = f"object is being deleted: {found.message}"
            raise found from error
        except StoreError as error:
            raise _storage_error(error) from error
        return Written(await self._arrived(item), True)

    # -- update ---------------------------------------------------------------------------------------------------
    async def update(
        self,
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
        strategy, key = self.strategy(resource), resource.key(namespace, name)
        if create_missing is None:
            create_missing = strategy.allow_create_on_update and not subresource
        entry = self.cached(resource).get(key)
        while True:
            if entry is None:
                if not create_missing:
                    raise errors.not_found(resource.group, resource.plural, name)
                obj = await change(None)
                obj.setdefault("metadata", {})["name"] = name
                obj["metadata"].pop("resourceVersion", None)
                return await self.create(context, resource, namespace, obj)
            try:
                return await self._update_once(context, strategy, entry, namespace, name, change, subresource, admit_as)
            except RevisionConflict as conflict:
                current = conflict.current
                entry = self.cached(resource).entry(key, current.value, current.revision)
            except KeyNotFound:
                entry = None

    async def _update_once(
        self,
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
        old = codec.decode(entry.data)
        obj = await change(codec.decode(entry.data))
        obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
        meta, old_meta = obj.setdefault("metadata", {}), old["metadata"]
        self._check_revision(strategy, meta, entry, name)
        if meta.get("uid") and meta["uid"] != old_meta.get("uid"):
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old_meta.get('uid')}"
            raise errors.conflict(resource.group, resource.plural, name, why)
        if resource.namespaced:
            meta.setdefault("namespace", namespace)
        metadata.carry_over(meta, old_meta)
        strategy.default(obj)
        if subresource != "binding":
            part = subresource if admit_as is None else admit_as
            track(resource, obj, old, context.field_manager, context.operation, part, self.clock.now())
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
        )
        await self.admission.admit(attributes)
        if subresource:
            strategy.prepare_subresource(subresource, obj, old)
        else:
            strategy.prepare_update(obj, old)
        _always_status(resource, obj)
        strategy.default(obj)
        if metadata.keeps_generation(resource) and subresource not in _SILENT and metadata.spec_changed(obj, old):
            meta["generation"] = (old_meta.get("generation") or 0) + 1
        finish: Finish | None = None
        if subresource not in _SILENT:
            finish = await strategy.allocate(obj, old, Allocation(self, context))
        stored = False
        try:
            problems = metadata.validate_update(resource, meta, old_meta, strategy.name_errors)
            if subresource:
                _merge_problems(problems, strategy.validate_subresource(subresource, obj, old))
            else:
                _merge_problems(problems, strategy.validate_update(obj, old))
            if problems:
                raise errors.invalid(resource.group, resource.kind, name, problems)
            context.warnings += strategy.warnings(obj, old)
            await self.admission.validate(attributes)
            meta["resourceVersion"] = old_meta["resourceVersion"]
            written = await self._store_changed(context, strategy, entry, obj, old)
            stored = not context.dry_run
            return written
        finally:
            if finish is not None:
                await finish(stored)

    async def _store_changed(
        self, context: Context, strategy: Strategy, entry: Entry, obj: Object, old: Object
    ) -> Written:
        resource = strategy.resource
        if obj == old:
            return Written(entry.data)
        value = self._encode(obj)
        if context.dry_run:
            return Written(codec.with_revision(value, entry.revision))
        try:
            if _gone(resource, obj, old):
                item = await self._landed(await self.store.delete(entry.key, entry.revision))
                await strategy.release(obj, Allocation(self, context))
                return Written(codec.with_revision(value, item.revision))
            item = await self.store.update(entry.key, value, entry.revision, self._ttl(resource))
        except (RevisionConflict, KeyNotFound):
            raise
        except StoreError as error:
            raise _storage_error(error) from error
        return Written(await self._arrived(item))

    def _check_revision(self, strategy: Strategy, meta: Object, entry: Entry, name: str) -> None:
        given, resource = meta.get("resourceVersion"), strategy.resource
        if not given or given == "0":
            if not strategy.allow_unconditional_update:
                problem = errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
                problem = FieldError(problem.path, "Invalid value", problem.detail, 0)
                raise errors.invalid(resource.group, resource.kind, name, [problem])
        elif given != str(entry.revision):
            raise errors.conflict(resource.group, resource.plural, name, errors.MODIFIED)

    # -- delete ---------------------------------------------------------------------------------------------------
    async def delete(
        self, context: Context, resource: Resource, namespace: str, name: str, options: DeleteOptions
    ) -> tuple[Written | None, bool, Object]:
        """Delete an object or mark it for deletion. Returns (what to show or None, whether it is gone, the object)."""
        strategy, key = self.strategy(resource), resource.key(namespace, name)
        entry = self.cached(resource).get(key)
        admitted = False
        while True:
            if entry is None:
                raise errors.not_found(resource.group, resource.plural, name)
            obj = codec.decode(entry.data)
            metadata.precondition(resource, obj["metadata"], options.preconditions)
            if not admitted:
                attributes = Attributes(
                    resource,
                    "DELETE",
                    context.user,
                    namespace,
                    name,
                    old=entry.obj,
                    options=context.options,
                    dry_run=options.dry_run,
                    warnings=context.warnings,
                )
                await self.admission.admit(attributes)
                await self.admission.validate(attributes)
                admitted = True
            outcome = _namespace_outcome(obj, self.clock) if resource.target == "namespaces" else None
            if outcome is None:
                grace = strategy.deletion_grace(obj, options.grace_period)
                outcome = deletion.plan(obj["metadata"], options, grace, self.clock.now())
            try:
                if outcome == "pending":
                    return Written(entry.data), False, obj
                if options.dry_run:
                    return Written(codec.with_revision(codec.encode(obj), entry.revision)), outcome == "delete", obj
                if outcome == "mark":
                    item = await self.store.update(key, self._encode(obj), entry.revision, self._ttl(resource))
                    return Written(await self._arrived(item)), False, obj
                item = await self._landed(await self.store.delete(key, entry.revision))
            except RevisionConflict as conflict:
                entry = self.cached(resource).entry(key, conflict.current.value, conflict.current.revision)
                continue
            except KeyNotFound:
                entry = None
                continue
            except StoreError as error:
                raise _storage_error(error) from error
            await strategy.release(obj, Allocation(self, context))
            shown = resource.target in _RETURNS_DELETED
            return Written(codec.with_revision(item.value, item.revision)) if shown else None, True, obj

    # -- storing --------------------------------------------------------------------------------------------------
    def _encode(self, obj: Object) -> bytes:
        value = codec.encode(obj)
        if len(value) > LARGEST_OBJECT:
            raise StatusError(500, "", "etcdserver: request is too large")
        return value

    def _ttl(self, resource: Resource) -> int:
        return self.event_ttl if resource.plural == "events" else 0

    async def _landed(self, item: Item) -> Item:
        try:
            await self.cache.wait_fresh(item.revision)
        except FutureRevision:
            log.warning("the watch cache lags behind revision %d", item.revision)
        return item

    async def _arrived(self, item: Item) -> bytes:
        """Wait until the cache shows a write, so that its writer reads it, and return the object's bytes."""
        await self._landed(item)
        return codec.with_revision(item.value, item.revision)


@functools.cache
def _has_status(resource: Resource) -> bool:
    return any(
        field.name == "status" and field.default_factory is not msgspec.NODEFAULT
        for field in msgspec.structs.fields(resource.type)
    )


def _always_status(resource: Resource, obj: Object) -> None:
    """Give an object its empty status, which Go's encoder writes for every kind that has one."""
    if "status" not in obj and _has_status(resource):
        obj["status"] = {}


def _gone(resource: Resource, obj: Object, old: Object) -> bool:
    """Say whether an update took away the last thing that held a marked object."""
    if not deletion.ready_to_go(obj["metadata"]):
        return False
    if resource.target == "namespaces" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return bool(old["metadata"].get("deletionTimestamp"))


def _namespace_outcome(obj: Object, clock: Clock) -> deletion.Outcome | None:
    """A namespace first becomes Terminating; it goes when the namespace controller has emptied it (spec.finalizers)."""
    meta = obj["metadata"]
    if meta.get("deletionTimestamp") is None:
        meta["deletionTimestamp"] = format_time(clock.now())
        obj.setdefault("status", {})["phase"] = "Terminating"
        return "mark"
    return "pending" if (obj.get("spec") or {}).get("finalizers") else None


def _merge_problems(problems: list[FieldError], more: list[FieldError]) -> None:
    """Add a strategy's findings to the metadata's, each only once."""
    problems += [problem for problem in more if problem not in problems]


def _without_revision(obj: Object) -> bytes:
    shown = dict(obj)
    shown["metadata"] = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    return msgspec.json.encode(shown)


def _storage_error(error: StoreError) -> StatusError:
    if isinstance(error, Unavailable):
        return StatusError(500, "InternalError", f"Internal error occurred: {error}")
    return errors.internal(str(error))
