"""Resources as the server serves them: the row of the table with the strategy, the decoder, the merge shape and the schema.

Built-in kinds have a generated type, custom ones (`custom`) a schema. Everything that takes a `Resource` accepts one of these.
Two are equal only if they are the same object, because a changed definition creates new ones.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from control.decoding.decode import Decoder
from control.decoding.typed import to_object
from control.patch.schema import Node, of_object
from control.registry.conversion import conversion
from control.registry.strategies import strategy_for
from control.registry.strategy import Strategy
from control.registry.strategy_context import Settings
from kube.client import APPLY, JSON_PATCH, MERGE, STRATEGIC
from kube.json_object import Object
from kube.resources import RESOURCES, Resource

Executor = Callable[..., Awaitable[Any]]
"""Calls a function with arguments, here or elsewhere (`control.event_loop.offload`), and returns its result."""


async def run_inline(work: Callable[..., Any], *args: Any) -> Any:
    """Call the function on the event loop, an `Executor` for small objects."""
    return work(*args)


class ServedResource(Resource):
    """One served version of a resource."""

    __hash__ = Resource.__hash__
    patch_types: Sequence[str] = (JSON_PATCH, MERGE, STRATEGIC, APPLY)
    """Media types of the patches that change its objects, in the order in which upstream names them."""

    def __eq__(self, other: object) -> bool:
        return self is other

    @cached_property
    def strategy(self) -> Strategy:
        """Its behaviour on the registry's path."""
        raise NotImplementedError

    @cached_property
    def decoder(self) -> Decoder:
        """Reads bodies of its kind."""
        raise NotImplementedError

    @cached_property
    def shape(self) -> Node:
        """Merge rules of its objects, for server-side apply."""
        raise NotImplementedError

    @cached_property
    def schema(self) -> Object:
        """The OpenAPI schema of a custom resource."""
        raise NotImplementedError

    @cached_property
    def definition(self) -> Object:
        """The CustomResourceDefinition of a custom resource; read-only."""
        raise NotImplementedError

    @cached_property
    def writes_status(self) -> bool:
        """True if its objects always have a status, which Go's encoder writes for every kind that has one."""
        return False

    @property
    def stored_version(self) -> str:
        """The version that its objects are stored in, as discovery's hash has it."""
        return self.version

    @cached_property
    def selectable(self) -> frozenset[str]:
        """The fields that selectors may name besides name and namespace: a strategy names them also for an empty object."""
        return frozenset(self.strategy.fields({}))

    def versions(self) -> Sequence[Resource]:
        """Return all resources that show the same stored objects."""
        raise NotImplementedError

    async def in_version(self, obj: Object, shown: Resource, run: Executor = run_inline) -> Object:
        """Return an object of this version as another one shows it; `run` does the work on the whole object."""
        raise NotImplementedError

    async def from_version(self, obj: Object, shown: Resource, run: Executor = run_inline) -> Object:
        """Return an object of another version as one of this, with the types and fields of its kind.

        Raises msgspec.ValidationError or StatusError where it has none of the kind.
        """
        raise NotImplementedError


class BuiltInResource(ServedResource):
    """A resource of the table, under the settings of a server."""

    def __init__(self, row: Resource, settings: Settings = Settings()) -> None:  # noqa: B008 - it is frozen
        super().__init__(**{field.name: getattr(row, field.name) for field in dataclasses.fields(row)})
        self._settings = settings

    @cached_property
    def writes_status(self) -> bool:
        found = (field for field in msgspec.structs.fields(self.type) if field.name == "status")
        return any(field.default_factory is not msgspec.NODEFAULT for field in found)

    @cached_property
    def strategy(self) -> Strategy:
        return strategy_for(self, self._settings)

    @cached_property
    def decoder(self) -> Decoder:
        return Decoder(self.type, self.api_version, self.kind)

    @cached_property
    def shape(self) -> Node:
        return of_object(self.type)

    def versions(self) -> Sequence[Resource]:
        return [other for other in RESOURCES if other.storage_prefix == self.storage_prefix]

    async def in_version(self, obj: Object, shown: Resource, run: Executor = run_inline) -> Object:
        way = None if shown.api_version == self.api_version else conversion(shown)
        return obj if way is None else await run(way.to_served, obj)

    async def from_version(self, obj: Object, shown: Resource, run: Executor = run_inline) -> Object:
        typed: Object = await run(self._typed, obj, shown)
        return typed

    def _typed(self, obj: Object, shown: Resource) -> Object:
        typed = to_object(obj, shown.type)
        typed |= {"kind": shown.kind, "apiVersion": shown.api_version}
        way = None if shown.api_version == self.api_version else conversion(shown)
        return typed if way is None else way.to_stored(typed)


@functools.cache
def _built_in(row: Resource) -> BuiltInResource:
    return BuiltInResource(row)


def served(resource: Resource) -> ServedResource:
    """Return a resource as it is served: a row of the table under default settings."""
    return resource if isinstance(resource, ServedResource) else _built_in(resource)


def of_table(settings: Settings) -> dict[Resource, ServedResource]:
    """Return the built-in resources by their rows."""
    return {row: BuiltInResource(row, settings) for row in RESOURCES}
