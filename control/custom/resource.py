"""A served version of a custom resource, in the form of a row of the resource table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from control.custom.conversion import Reader, Versions
from control.custom.decoder import CustomDecoder
from control.custom.strategy import CustomStrategy
from control.patch.schema import Node
from control.registry.apiextensions.stored import folder
from control.registry.served import Executor, ServedResource, run_inline
from control.schemas import rules
from control.schemas.merge_rules import of_custom
from kube.client import APPLY, JSON_PATCH, MERGE
from kube.json_object import Object
from kube.resources import Resource


class CustomResource(ServedResource):
    """One served version, compiled; `siblings` are all served versions of its definition, by name."""

    patch_types = (JSON_PATCH, MERGE, APPLY)

    def __init__(
        self, definition: Object, version: Object, versions: Versions, siblings: Mapping[str, CustomResource]
    ) -> None:
        spec = definition["spec"]
        names = (definition.get("status") or {}).get("acceptedNames") or spec["names"]
        parts = version.get("subresources") or {}
        super().__init__(
            spec["group"],
            version["name"],
            spec["names"]["plural"],
            names["kind"],
            "",
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in parts),
        )
        self.singular = names.get("singular") or names["kind"].lower()
        self.list_kind = names.get("listKind") or names["kind"] + "List"
        self.definition, self._siblings = definition, siblings
        schema = versions.schemas[version["name"]]
        self.schema = schema.source
        self.decoder = CustomDecoder(schema, self.api_version, self.kind)
        self._reader = Reader(versions, version["name"])
        self.strategy = CustomStrategy(self, version, schema, self._reader, rules.build(schema))
        self._compiled = schema

    def __hash__(self) -> int:
        return id(self)

    @property
    def type(self) -> Any:
        return None

    @property
    def custom(self) -> bool:
        return True

    @cached_property
    def storage_prefix(self) -> str:
        """The prefix of its keys in the store, upstream's: "/registry/stable.example.com/crontabs/"."""
        return folder(self.group, self.plural)

    @property
    def stored_version(self) -> str:
        name: str = next(v["name"] for v in self.definition["spec"]["versions"] if v.get("storage"))
        return name

    @cached_property
    def shape(self) -> Node:
        return of_custom(self._compiled)

    def versions(self) -> Sequence[Resource]:
        return list(self._siblings.values())

    async def in_version(self, obj: Object, shown: Resource, run: Executor = run_inline) -> Object:
        return obj if shown.version == self.version else await self._reader.in_version(obj, shown.version)

    async def from_version(self, obj: Object, shown: Resource, run: Executor = run_inline) -> Object:
        if shown.version != self.version:
            obj = await self._reader.in_version(obj, self.version)
        converted: Object = await run(self.decoder.convert, obj, "Ignore", [])
        return converted
