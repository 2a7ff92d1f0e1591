"""Hooks by which a kind customizes the generic path of every resource.

The generic registry (create, get, list, update, patch, delete, watch) knows nothing of kinds. Whatever differs is a
`Strategy`: defaults, what a create or an update may set, validation, selectable fields, table columns, how deletion
goes, and extra subresources. Objects are JSON-shaped dicts of the resource's storage version, already decoded into
their type and back (so wrong types and unknown fields are gone); a hook that changes one does so in place.

`metadata` (name, uid, creationTimestamp, generation, deletionTimestamp, managedFields ...) is the generic path's business.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from control.registry import deletion_plan, metadata, naming
from control.registry.changes import validate_immutable
from control.registry.columns import AGE, NAME, Column, compiled_row
from control.registry.defaults import Defaults
from control.registry.rows import Rows
from control.registry.strategy_context import DEFAULT_SETTINGS, Context, Finish, ReleaseContext, Settings
from control.storage import codec
from control.storage.entry import Entry
from control.storage.watcher import WatchEvent
from kube.errors import FieldError
from kube.json_object import Object
from kube.resources import Resource

OBJECT_META = ("deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences")
"""Metadata fields that upstream's ResetObjectMetaForStatus resets, for `status_keeps`."""


class Strategy:
    """Default behaviour of a kind; subclasses override what differs."""

    columns: Sequence[Column] = (NAME, AGE)
    field_rules: Rows | None = None
    """The rules of fields, of which `validate` returns the errors."""
    field_defaults: Defaults | None = None
    """The defaults of fields, which `default` fills in."""
    name_rule: Callable[..., list[str]] = staticmethod(naming.subdomain)
    """The rule for metadata.name, one of naming.py's."""
    immutable: Sequence[str] = ()
    """Paths of fields that an update may not change."""
    allow_create_on_update = False
    """PUT of a name that does not exist creates it (upstream: leases, events, endpoints, ...)."""
    allow_unconditional_update = True
    """An update without resourceVersion is accepted and overwrites."""
    returns_deleted = False
    """A deletion is answered with the object rather than with a Status (ReturnDeletedObject upstream)."""
    allocates = False
    """True if objects have something that is given back when a write fails or an object goes: such writes are carried out
    to their end, also when the request is over before."""
    has_generation = True
    """metadata.generation starts at 1 and rises when the spec changes."""
    status_keeps: tuple[str, ...] = ()
    """Parts of the metadata that an update of the status leaves as they were, too (upstream's kinds differ in this)."""
    api_warning = ""
    """A sentence that every request for the resource is answered with (a deprecated API)."""
    orphans_dependents = False
    """True if an object's dependents stay where a deletion names no propagation policy (DefaultGarbageCollectionPolicy)."""
    has_dependents = True
    """False if the garbage collector ignores the kind, so that propagation policies have no effect (upstream: Unsupported)."""
    orphan_warning = ""
    """A sentence that such a deletion is answered with."""
    default_grace_period: int | None = None
    """Not None: deletion is graceful (see `deletion_grace`)."""

    scale: Object | None = None
    """Paths of a custom resource's subresource `scale`."""
    index: Callable[[bytes], str] | None = None
    """Index of the watch cache: decodes the value from an object's JSON, "" where it has none."""
    stored_as_served = True
    """The bytes in the store are what clients are shown. Where not, `read`, `to_stored` and `view` convert."""
    fields_by_webhook = False
    """True if selectable fields may first appear when a webhook converts what is stored."""

    def __init__(self, resource: Resource, settings: Settings = DEFAULT_SETTINGS) -> None:
        self.resource, self.settings = resource, settings

    @property
    def ttl(self) -> int:
        """Return the seconds after which an object goes by itself, 0 for never."""
        return 0

    # -- stored and served ----------------------------------------------------------------------------------------
    async def read(self, entry: Entry) -> Object:
        """Return a stored object in the served version, as a dict to change."""
        return codec.decode(entry.data)

    def stale(self, entry: Entry) -> bool:
        """Return whether an object would be stored differently today, so that also an update without changes is written."""
        return False

    async def to_stored(self, obj: Object) -> Object:
        """Return an object of the served version as it is stored."""
        return obj

    async def view(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return stored objects as the served version shows them."""
        return entries

    async def view_events(self, watch_events: Sequence[WatchEvent]) -> Sequence[WatchEvent]:
        """Return watch events with their objects as the served version shows them."""
        return watch_events

    # -- writes ---------------------------------------------------------------------------------------------------
    def default(self, obj: Object) -> None:
        """Fill in upstream's defaults (pkg/apis/*/v1/defaults.go). Runs on every create, update and patch."""
        if self.field_defaults is not None:
            self.field_defaults(obj)

    def prepare_create(self, obj: Object) -> None:
        """Drop what a create may not set; by default `status` is dropped where the resource has that subresource."""
        if "status" in self.resource.subresources:
            obj.pop("status", None)

    def warnings_as_sent(self, obj: Object) -> list[str]:
        """Return sentences for Warning headers of a create that prepare_create would leave no trace of."""
        return []

    def prepare_update(self, obj: Object, old: Object) -> None:
        """Reset what an update may not change; by default `status` stays as it was where it is a subresource."""
        if "status" in self.resource.subresources:
            keep(obj, old, "status")

    def prepare_status_update(self, obj: Object, old: Object) -> None:
        """Reset what an update of the status subresource may not change: all but status (and metadata's freedoms)."""
        for part in {*obj, *old} - {"status", "metadata", "apiVersion", "kind"}:
            keep(obj, old, part)
        for part in self.status_keeps:
            keep(obj.setdefault("metadata", {}), old.get("metadata") or {}, part)

    def prepare_subresource(self, subresource: str, obj: Object, old: Object) -> None:
        """Reset what an update through a subresource may not change; by default as an update of the whole, but for status."""
        if subresource == "status":
            self.prepare_status_update(obj, old)
        else:
            self.prepare_update(obj, old)

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish | None:
        """Fill in what the server hands out: addresses, ports, the requester's name. Runs after prepare_*, before validation.

        Raises StatusError if there is nothing to hand out. The returned callback is awaited once the write is stored,
        or has failed at any later point (NOT_STORED, dry-run included).
        """
        return None

    async def release(self, obj: Object, context: ReleaseContext) -> None:
        """Take back what `allocate` handed out; runs once an object is gone from the store."""

    def name_errors(self, name: str, *, prefix: bool = False) -> list[str]:
        """Return what is wrong with metadata.name (or generateName, with `prefix`)."""
        return self.name_rule(name, prefix=prefix)

    @property
    def keeps_generation(self) -> bool:
        """Return whether objects carry metadata.generation."""
        return metadata.keeps_generation(self.resource)

    def raises_generation(self, obj: Object, old: Object) -> bool:
        """Return whether a change raises metadata.generation."""
        return metadata.spec_changed(obj, old)

    def validate(self, obj: Object) -> list[FieldError]:
        """Return everything wrong with a new object, with upstream's field paths and messages."""
        return [] if self.field_rules is None else self.field_rules.errors(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return everything wrong with a change: with the object as a whole, and with fields that are immutable."""
        errors = self.validate(obj)
        return errors + validate_immutable(obj, old, *self.immutable) if self.immutable else errors

    def validate_requested(self, obj: Object, old: Object | None, requested: Resource) -> list[FieldError]:
        """Return what is wrong beyond `validate` because another version or group of the kind was requested."""
        return []

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return []

    def validate_subresource(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        """Return everything wrong with a change through a subresource; by default as for the whole, but for status."""
        check = self.validate_status_update if subresource == "status" else self.validate_update
        return check(obj, old)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Return sentences for Warning headers (deprecated fields and such)."""
        return []

    def status_warnings(self, obj: Object) -> list[str]:
        """Return sentences for Warning headers after an update of the status."""
        return []

    def subresource_warnings(self, subresource: str, obj: Object, old: Object) -> list[str]:
        """Return sentences for Warning headers after a change through a subresource, "" for none."""
        return self.status_warnings(obj) if subresource == "status" else self.warnings(obj, old)

    # -- reads ----------------------------------------------------------------------------------------------------
    def fields(self, obj: Object) -> dict[str, str]:
        """Return the selectable fields besides metadata.name and metadata.namespace, which every kind has."""
        return {}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        """Return the cells for `columns`."""
        return self._cells(obj, now)

    @functools.cached_property
    def _cells(self) -> Callable[[Object, datetime], list[Any]]:
        return compiled_row(self.columns)

    def row_conditions(self, obj: Object) -> list[Object]:
        """Return a table row's conditions (pods that have ended carry Completed)."""
        return []

    # -- deletion -------------------------------------------------------------------------------------------------
    def prepare_delete(self, obj: Object, now: datetime) -> None:
        """Change an object that is about to be marked for deletion or deleted (definitions get a finalizer)."""

    def plan_deletion(self, obj: Object, now: datetime) -> deletion_plan.Outcome | None:
        """Change an object that is to be deleted and return the result; None for the default deletion."""
        return None

    def blocks_deletion(self, obj: Object) -> bool:
        """Return whether something besides metadata.finalizers keeps an object that is marked for deletion."""
        return False

    def deletion_grace(self, obj: Object, requested: int | None) -> int | None:
        """Return the seconds of grace for a deletion, or None if the object goes at once."""
        return None


def keep(obj: Object, old: Object, part: str) -> None:
    """Make one part of `obj` what it is in `old`."""
    if part in old:
        obj[part] = old[part]
    else:
        obj.pop(part, None)
