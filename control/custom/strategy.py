"""Strategy of a custom resource's version, from its definition.

Defaults and pruning have happened when the body was decoded; what is left is the generation, the subresources' shares of the
object, and validation by schema and rules. Objects on the path are in the served version; `read` and `to_stored` are the two
ends where they come from and go to the stored one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from control.custom.columns import Columns
from control.custom.conversion import Reader
from control.registry.strategy import Strategy, keep
from control.registry.strategy_context import Settings
from control.schemas import jsonpath, validation
from control.schemas.rules import Rules
from control.schemas.schema import MISSING, Schema, fill
from control.schemas.uniqueness import check_structure
from control.storage.entry import Entry
from control.storage.watcher import WatchEvent
from kube import errors
from kube.errors import FieldError
from kube.json_object import Object, identical
from kube.resources import Resource

_INT32 = 2**31 - 1


class _Checked(threading.local):
    """Warnings of rules in the validation that this thread has just done; the next step reads them."""

    def __init__(self) -> None:
        self.warnings: list[str] = []


class CustomStrategy(Strategy):
    """One served version of a custom resource."""

    stored_as_served = False

    def __init__(
        self, resource: Resource, version: Object, schema: Schema, reader: Reader, rules: Rules | None
    ) -> None:
        super().__init__(resource, Settings())
        self.schema, self.reader, self.rules = schema, reader, rules
        self._checked = _Checked()
        self.fields_by_webhook = reader.by_webhook
        self._columns = Columns(version.get("additionalPrinterColumns"))
        self.columns = self._columns.columns
        subresources = version.get("subresources") or {}
        self.has_status = "status" in subresources
        self.scale = subresources.get("scale")
        self._fields = [
            (f["jsonPath"].removeprefix("."), jsonpath.plain(f["jsonPath"]))
            for f in version.get("selectableFields") or ()
        ]
        if version.get("deprecated"):
            text = version.get("deprecationWarning")
            self.api_warning = text or f"{resource.api_version} {resource.kind} is deprecated"

    # -- stored and served ----------------------------------------------------------------------------------------
    async def read(self, entry: Entry) -> Object:
        return await self.reader.read(entry)

    def stale(self, entry: Entry) -> bool:
        return not self.reader.current(entry)

    async def to_stored(self, obj: Object) -> Object:
        return await self.reader.to_stored(obj)

    async def view(self, entries: Sequence[Entry]) -> list[Entry]:
        return await self.reader.view(entries)

    async def view_events(self, watch_events: Sequence[WatchEvent]) -> list[WatchEvent]:
        return await self.reader.watch_events(watch_events)

    # -- writes ---------------------------------------------------------------------------------------------------
    @property
    def keeps_generation(self) -> bool:
        return True

    def raises_generation(self, obj: Object, old: Object) -> bool:
        """Return whether a change raises the generation: any but of metadata, and of status where that is a subresource."""
        passed = {"metadata", "apiVersion", "kind"} | ({"status"} if self.has_status else set())
        return any(not identical(obj.get(part), old.get(part)) for part in {*obj, *old} - passed)

    def default(self, obj: Object) -> None:
        fill(obj, self.schema)

    def prepare_create(self, obj: Object) -> None:
        if self.has_status:
            obj.pop("status", None)

    def prepare_update(self, obj: Object, old: Object) -> None:
        if self.has_status:
            keep(obj, old, "status")

    def prepare_status_update(self, obj: Object, old: Object) -> None:
        """Keep all but status: also the metadata, of which upstream lets only managedFields and finalizers through."""
        for part in {*obj, *old} - {"status", "metadata", "apiVersion", "kind"}:
            keep(obj, old, part)
        metadata = {**old["metadata"]}
        for part in ("managedFields", "resourceVersion"):
            if part in obj["metadata"]:
                metadata[part] = obj["metadata"][part]
        obj["metadata"] = metadata

    def validate(self, obj: Object) -> list[FieldError]:
        return self._check(obj, None)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self._check(obj, old)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self._check(obj, old, only_status=True)

    def _check(self, obj: Object, old: Object | None, *, only_status: bool = False) -> list[FieldError]:
        resource = self.resource
        if obj.get("kind") != resource.kind:
            return [errors.invalid_value("kind", obj.get("kind"), f"must be {resource.kind}")]
        if obj.get("apiVersion") != resource.api_version:
            return [errors.invalid_value("apiVersion", obj.get("apiVersion"), f"must be {resource.api_version}")]
        before = MISSING if old is None else old
        found = self._check_status(obj, before) if only_status else validation.check(obj, self.schema, before)
        found += self._check_scale(obj)
        found += check_structure(obj, self.schema)
        if self.rules is not None:
            if validation.blocks_rules(found):
                why = (
                    "some validation rules were not checked because the object was invalid; "
                    "correct the existing errors to complete validation"
                )
                found.append(errors.invalid_value(validation.NOWHERE, "null", why))
            else:
                problems, self._checked.warnings = self.rules.check(obj, old)
                found += problems
        return found

    def _check_status(self, obj: Object, old: Object) -> list[FieldError]:
        """Check the status alone; messages name its fields without the prefix `status`, as upstream's."""
        schema = self.schema.properties.get("status")
        if schema is None or "status" not in obj:
            return []
        found = validation.check(obj["status"], schema, old.get("status", MISSING))
        return [
            replace(each, path="status" if each.path == validation.NOWHERE else f"status.{each.path}") for each in found
        ]

    def _check_scale(self, obj: Object) -> list[FieldError]:
        if self.scale is None:
            return []
        found = []
        for key in ("specReplicasPath", "statusReplicasPath"):
            path = self.scale.get(key) or ""
            value = jsonpath.get(jsonpath.plain(path), obj)
            if isinstance(value, int | float) and not isinstance(value, bool):
                if value < 0:
                    found.append(errors.invalid_value(path, value, "should be a non-negative integer"))
                elif value > _INT32:
                    why = f"should be less than or equal to {_INT32}"
                    found.append(errors.invalid_value(path, value, why))
        return found

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        found, self._checked.warnings = self._checked.warnings, []
        return found

    # -- reads ----------------------------------------------------------------------------------------------------
    def fields(self, obj: Object) -> dict[str, str]:
        return {name: _text(jsonpath.get(path, obj)) for name, path in self._fields}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return self._columns.row(obj, now)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
